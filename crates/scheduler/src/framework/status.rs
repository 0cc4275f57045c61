//! The status with which plugins answer: a code, and reasons for the user.

use std::borrow::Cow;
use std::fmt;

/// A plugin's name.
pub type PluginName = &'static str;

/// The outcome of an extension point; upstream's `Code`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Code {
    /// The pod may go on.
    #[default]
    Success,
    /// The plugin failed; the pod is retried with backoff.
    Error,
    /// The pod cannot be placed; preemption may help.
    Unschedulable,
    /// The pod cannot be placed; preemption cannot help.
    UnschedulableAndUnresolvable,
    /// The pod has to wait; only Permit answers this.
    Wait,
    /// The plugin does not apply to this pod.
    Skip,
    /// The pod cannot be placed until something outside the scheduler happens.
    Pending,
}

impl Code {
    /// Upstream's name of the code.
    pub fn name(self) -> &'static str {
        match self {
            Code::Success => "Success",
            Code::Error => "Error",
            Code::Unschedulable => "Unschedulable",
            Code::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
            Code::Wait => "Wait",
            Code::Skip => "Skip",
            Code::Pending => "Pending",
        }
    }
}

/// The answer of a plugin; upstream's `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The outcome.
    pub code: Code,
    /// The reasons, as the FailedScheduling event shows them.
    pub reasons: Vec<Cow<'static, str>>,
    /// The plugin that answered; empty when it was none.
    pub plugin: PluginName,
}

impl Status {
    /// Success.
    pub const SUCCESS: Status = Status { code: Code::Success, reasons: Vec::new(), plugin: "" };

    /// A status with one reason.
    pub fn new(code: Code, reason: impl Into<Cow<'static, str>>) -> Self {
        Status { code, reasons: vec![reason.into()], plugin: "" }
    }

    /// The pod cannot be placed; preemption may help.
    pub fn unschedulable(reason: impl Into<Cow<'static, str>>) -> Self {
        Status::new(Code::Unschedulable, reason)
    }

    /// The pod cannot be placed; preemption cannot help.
    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Self {
        Status::new(Code::UnschedulableAndUnresolvable, reason)
    }

    /// The plugin failed.
    pub fn error(reason: impl Into<Cow<'static, str>>) -> Self {
        Status::new(Code::Error, reason)
    }

    /// The plugin does not apply to this pod.
    pub fn skip() -> Self {
        Status { code: Code::Skip, ..Status::default() }
    }

    /// The same status, answered by this plugin.
    #[must_use]
    pub fn by(mut self, plugin: PluginName) -> Self {
        self.plugin = plugin;
        self
    }

    /// True for Success.
    pub fn is_success(&self) -> bool {
        self.code == Code::Success
    }

    /// True for Skip.
    pub fn is_skip(&self) -> bool {
        self.code == Code::Skip
    }

    /// True when the pod was rejected, as opposed to an error; upstream's `IsRejected`.
    pub fn is_rejected(&self) -> bool {
        matches!(self.code, Code::Unschedulable | Code::UnschedulableAndUnresolvable | Code::Pending)
    }

    /// All reasons, joined by commas.
    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}
