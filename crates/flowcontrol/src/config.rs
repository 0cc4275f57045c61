//! What flow schemas and priority levels say. The names are those of `flowcontrol.apiserver.k8s.io/v1`.

/// Which requests go to which priority level, and which of them are one flow.
#[derive(Clone, Debug)]
pub struct FlowSchema {
    /// Its name.
    pub name: &'static str,
    /// The priority level of the requests.
    pub level: &'static str,
    /// Schemas with a lower number are asked first.
    pub precedence: i32,
    /// What makes two requests part of one flow.
    pub distinguisher: Distinguisher,
    /// The requests: those to which one of the rules applies.
    pub rules: Vec<Rule>,
}

/// What the requests of one flow have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinguisher {
    /// The flow schema alone.
    None,
    /// The user.
    ByUser,
    /// The namespace of the object.
    ByNamespace,
}

/// A rule applies when one of the subjects makes one of the requests.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Who asks.
    pub subjects: Vec<Subject>,
    /// For objects.
    pub resources: Vec<ResourceRule>,
    /// For paths that name no object.
    pub paths: Vec<NonResourceRule>,
}

/// Somebody who makes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A user by name, or `*`.
    User(&'static str),
    /// The members of a group, or `*`.
    Group(&'static str),
    /// A service account by namespace and name, or all of the namespace with `*`.
    ServiceAccount(&'static str, &'static str),
}

/// Requests for objects. `*` stands for all verbs, groups, resources or namespaces.
#[derive(Clone, Debug)]
pub struct ResourceRule {
    /// The verbs.
    pub verbs: Vec<&'static str>,
    /// The API groups; empty text for the core group.
    pub groups: Vec<&'static str>,
    /// The resources: `nodes`, `nodes/status`.
    pub resources: Vec<&'static str>,
    /// The namespaces of the objects.
    pub namespaces: Vec<&'static str>,
    /// Requests without a namespace, too.
    pub cluster_scope: bool,
}

/// Requests for paths. `*` stands for all verbs or paths; a path covers all below it.
#[derive(Clone, Debug)]
pub struct NonResourceRule {
    /// The verbs.
    pub verbs: Vec<&'static str>,
    /// The paths.
    pub paths: Vec<&'static str>,
}

/// A share of the server's seats, and what happens when none of it is free.
#[derive(Clone, Debug)]
pub struct PriorityLevel {
    /// Its name.
    pub name: &'static str,
    /// Its part of the seats, relative to the shares of the other levels.
    pub shares: u32,
    /// The part of its seats that others may use while it does not, in percent.
    pub lendable_percent: u32,
    /// How many seats it may borrow, in percent of its own; without limit when absent.
    pub borrowing_limit_percent: Option<u32>,
    /// What happens to requests for which no seat is free.
    pub limiting: Limiting,
}

/// What happens to requests for which no seat is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limiting {
    /// Requests need no seat.
    Exempt,
    /// They are refused.
    Reject,
    /// They wait.
    Queue(Queuing),
}

/// The queues of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queuing {
    /// How many queues there are.
    pub queues: usize,
    /// To how many of them the requests of one flow go.
    pub hand_size: usize,
    /// How many requests wait in one queue at most.
    pub queue_length_limit: usize,
}
