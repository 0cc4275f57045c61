//! Fields that others own and an applied object would change.

use super::element::Shown;
use super::fields;
use super::managed::{Identity, Managers};
use super::update::Others;

/// One field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The manager, as messages name it.
    pub manager: String,
    /// The field, as messages show it.
    pub field: String,
    pub(super) path: Vec<String>,
}

/// Takes what changed from all managers but one; without force, only if none of it was owned.
pub(super) fn displace(
    managers: &mut Managers,
    own: &Identity,
    others: &mut Others<'_>,
    force: bool,
) -> Result<(), Vec<Conflict>> {
    if !force {
        let conflicts = conflicts(managers, own, others);
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
    }
    managers.retain(|identity, owned| {
        if identity == own {
            return true;
        }
        let Some(changes) = others.in_version(&owned.api_version) else { return false };
        for gone in [&changes.modified, &changes.added, &changes.removed] {
            fields::subtract(&mut owned.fields, gone);
        }
        true
    });
    Ok(())
}

fn conflicts(managers: &Managers, own: &Identity, others: &mut Others<'_>) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    for (identity, owned) in managers.iter().filter(|(identity, _)| *identity != own) {
        let Some(changes) = others.in_version(&owned.api_version) else { continue };
        let mut contested = fields::intersection(&owned.fields, &changes.modified);
        fields::add(&mut contested, fields::intersection(&owned.fields, &changes.added));
        let manager = identity.shown();
        conflicts.extend(fields::paths(&contested).into_iter().map(|path| Conflict {
            manager: manager.clone(),
            field: Shown(&path).to_string(),
            path,
        }));
    }
    conflicts
}

/// Upstream's message about conflicts, which are in the order of their managers.
pub(super) fn message(conflicts: &[Conflict]) -> String {
    if let [conflict] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", conflict.manager, conflict.field);
    }
    let mut lines = Vec::new();
    let mut last = None;
    for conflict in conflicts {
        if last.replace(&conflict.manager) != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager));
        }
        lines.push(format!("- {}", conflict.field));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
