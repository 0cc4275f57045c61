//! What a plugin answers: a code, and reasons for the user.

use std::borrow::Cow;
use std::fmt;

/// A plugin's name.
pub type PluginName = &'static str;

/// How an extension point went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Code {
    /// It went well.
    #[default]
    Success,
    /// Something broke; the pod is retried with backoff.
    Error,
    /// The pod cannot be placed; preemption may help.
    Unschedulable,
    /// The pod cannot be placed; preemption cannot help.
    UnschedulableAndUnresolvable,
    /// The pod shall wait (Permit).
    Wait,
    /// The plugin has nothing to say about this pod.
    Skip,
    /// The pod cannot be placed until something outside happens.
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

/// A plugin's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// How it went.
    pub code: Code,
    /// Why, one sentence each.
    pub reasons: Vec<Cow<'static, str>>,
    /// Who said so; empty when nobody in particular.
    pub plugin: PluginName,
}

impl Status {
    /// All is well.
    pub const SUCCESS: Status = Status { code: Code::Success, reasons: Vec::new(), plugin: "" };

    /// An answer with one reason.
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

    /// Something broke.
    pub fn error(reason: impl Into<Cow<'static, str>>) -> Self {
        Status::new(Code::Error, reason)
    }

    /// The plugin has nothing to say about this pod.
    pub fn skip() -> Self {
        Status { code: Code::Skip, ..Status::default() }
    }

    /// The same answer, given by this plugin.
    #[must_use]
    pub fn by(mut self, plugin: PluginName) -> Self {
        self.plugin = plugin;
        self
    }

    /// True when all is well.
    pub fn is_success(&self) -> bool {
        self.code == Code::Success
    }

    /// True when the plugin has nothing to say.
    pub fn is_skip(&self) -> bool {
        self.code == Code::Skip
    }

    /// True when the pod was judged and turned down, as opposed to an error.
    pub fn is_rejected(&self) -> bool {
        matches!(self.code, Code::Unschedulable | Code::UnschedulableAndUnresolvable | Code::Pending)
    }

    /// All reasons as one sentence.
    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}
