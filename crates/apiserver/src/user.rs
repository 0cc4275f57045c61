//! The user who makes a request.

use std::collections::BTreeMap;

/// An authenticated user; upstream's `user.Info`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// User name, `system:kube-scheduler` for example.
    pub name: String,
    /// Distinguishes users who have had the same name; often empty.
    pub uid: String,
    /// The groups, `system:authenticated` included.
    pub groups: Vec<String>,
    /// What else the authenticator knows, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The group whose members may do everything.
pub(crate) const GROUP_MASTERS: &str = "system:masters";
/// The group of all authenticated users.
pub(crate) const GROUP_AUTHENTICATED: &str = "system:authenticated";

impl User {
    /// A user with these groups and `system:authenticated`.
    pub fn new(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|g| g == GROUP_AUTHENTICATED) {
            groups.push(GROUP_AUTHENTICATED.to_owned());
        }
        User { name: name.into(), groups, ..User::default() }
    }

    /// True for members of the group.
    pub(crate) fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}
