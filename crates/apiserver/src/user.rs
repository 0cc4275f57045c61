//! Who makes a request.

use std::collections::BTreeMap;

/// An authenticated identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// User name, `system:kube-scheduler` for example.
    pub name: String,
    /// Distinguishes users of one name over time; often empty.
    pub uid: String,
    /// The groups, `system:authenticated` included.
    pub groups: Vec<String>,
    /// Whatever else the authenticator knows.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Members may do everything.
pub const GROUP_MASTERS: &str = "system:masters";
/// Everybody who proved an identity.
pub const GROUP_AUTHENTICATED: &str = "system:authenticated";

impl User {
    /// An identity of that name; the group of authenticated users is added.
    pub fn new(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|g| g == GROUP_AUTHENTICATED) {
            groups.push(GROUP_AUTHENTICATED.to_owned());
        }
        User { name: name.into(), groups, ..User::default() }
    }

    /// True for members of the group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}
