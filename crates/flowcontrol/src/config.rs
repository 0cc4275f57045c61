//! What flow schemas and priority levels say, read from objects of `flowcontrol.apiserver.k8s.io/v1`.
//!
//! Objects are validated when they are written, but what is stored may have been written by others: an object that
//! contradicts itself is [`Broken`], and counts as if it did not exist.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::matching::{Rule, RuleSpec};
use crate::shuffle_sharding;

/// The level whose requests need no seat. No other may be exempt.
pub const EXEMPT: &str = "exempt";
/// The flow schema of requests that no other schema wants.
pub const CATCH_ALL: &str = "catch-all";

/// Why an object cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// A field has another type than it should have.
    #[error("it cannot be read")]
    Unreadable(#[from] serde_json::Error),
    /// A part is there that the type excludes, or is missing.
    #[error("its type and its {0} do not fit together")]
    Contradiction(&'static str),
    /// A number is out of its range.
    #[error("its {0} is out of range")]
    Range(&'static str),
    /// Hands of this size cannot be dealt from so many queues.
    #[error("hands of {hand_size} cannot be dealt from {queues} queues")]
    Hand {
        /// The number of queues.
        queues: usize,
        /// The queues of one flow.
        hand_size: usize,
    },
    /// A word that has no meaning here.
    #[error("its {0} is unknown")]
    Unknown(&'static str),
}

/// Which requests go to which priority level, and which of them are one flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSchema {
    /// Its name.
    pub name: String,
    /// The uid of the object; empty for one that is only imagined.
    pub uid: String,
    /// The priority level of the requests.
    pub level: String,
    /// Schemas with a lower number are asked first.
    pub precedence: i32,
    /// What makes two requests part of one flow.
    pub distinguisher: Distinguisher,
    /// The requests: those to which one of the rules applies.
    pub(crate) rules: Vec<Rule>,
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

/// A share of the server's seats, and what happens when none of it is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityLevel {
    /// Its name.
    pub name: String,
    /// The uid of the object; empty for one that is only imagined.
    pub uid: String,
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Identity {
    name: String,
    uid: String,
}

/// `null` stands for what is not there.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

fn part<T: for<'de> Deserialize<'de>>(object: &Value, name: &str) -> Result<T, Broken> {
    Ok(T::deserialize(&object[name])?)
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SchemaSpec {
    priority_level_configuration: Identity,
    matching_precedence: i32,
    distinguisher_method: Option<Typed>,
    #[serde(deserialize_with = "or_default")]
    rules: Vec<RuleSpec>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Typed {
    r#type: String,
}

impl FlowSchema {
    /// Reads an object.
    pub fn read(object: &Value) -> Result<FlowSchema, Broken> {
        let Identity { name, uid } = part(object, "metadata")?;
        let spec: SchemaSpec = part(object, "spec")?;
        let distinguisher = match spec.distinguisher_method.as_ref().map(|method| method.r#type.as_str()) {
            None => Distinguisher::None,
            Some("ByUser") => Distinguisher::ByUser,
            Some("ByNamespace") => Distinguisher::ByNamespace,
            Some(_) => return Err(Broken::Unknown("distinguisher method")),
        };
        let (level, precedence) = (spec.priority_level_configuration.name, spec.matching_precedence);
        let rules = spec.rules.into_iter().map(Rule::from).collect();
        Ok(FlowSchema { name, uid, level, precedence, distinguisher, rules })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LevelSpec {
    r#type: String,
    limited: Option<Limited>,
    exempt: Option<Shares>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Shares {
    nominal_concurrency_shares: Option<i32>,
    lendable_percent: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Limited {
    #[serde(flatten)]
    shares: Shares,
    borrowing_limit_percent: Option<i32>,
    limit_response: LimitResponse,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LimitResponse {
    r#type: String,
    queuing: Option<QueuingSpec>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct QueuingSpec {
    queues: i32,
    hand_size: i32,
    queue_length_limit: i32,
}

/// The shares of a limited level that does not name them.
const SHARES_DEFAULT: i32 = 30;

impl PriorityLevel {
    /// Reads an object.
    pub fn read(object: &Value) -> Result<PriorityLevel, Broken> {
        let Identity { name, uid } = part(object, "metadata")?;
        let spec: LevelSpec = part(object, "spec")?;
        let (shares, default, borrowing, limiting) = match (spec.r#type.as_str(), spec.limited, spec.exempt) {
            ("Exempt", None, Some(shares)) => (shares, 0, None, Limiting::Exempt),
            ("Limited", Some(limited), None) => {
                let limiting = limited.limit_response.limiting()?;
                (limited.shares, SHARES_DEFAULT, limited.borrowing_limit_percent, limiting)
            }
            _ => return Err(Broken::Contradiction("limits")),
        };
        if (name == EXEMPT) != (limiting == Limiting::Exempt) {
            return Err(Broken::Contradiction("name"));
        }
        let number = |value: Option<i32>, default, what| {
            u32::try_from(value.unwrap_or(default)).map_err(|_negative| Broken::Range(what))
        };
        let lendable_percent = number(shares.lendable_percent, 0, "lendable percentage")?;
        if lendable_percent > 100 {
            return Err(Broken::Range("lendable percentage"));
        }
        Ok(PriorityLevel {
            name,
            uid,
            shares: number(shares.nominal_concurrency_shares, default, "number of shares")?,
            lendable_percent,
            borrowing_limit_percent: borrowing
                .map(|percent| number(Some(percent), 0, "borrowing limit"))
                .transpose()?,
            limiting,
        })
    }
}

impl LimitResponse {
    fn limiting(self) -> Result<Limiting, Broken> {
        let queuing = match (self.r#type.as_str(), self.queuing) {
            ("Reject", None) => return Ok(Limiting::Reject),
            ("Queue", Some(queuing)) => queuing,
            _ => return Err(Broken::Contradiction("queuing")),
        };
        let number = |value: i32, what| usize::try_from(value).map_err(|_negative| Broken::Range(what));
        let queuing = Queuing {
            queues: number(queuing.queues, "number of queues")?,
            hand_size: number(queuing.hand_size, "hand size")?,
            queue_length_limit: number(queuing.queue_length_limit, "queue length limit")?,
        };
        let Queuing { queues, hand_size, .. } = queuing;
        if !shuffle_sharding::can_deal(queues, hand_size) {
            return Err(Broken::Hand { queues, hand_size });
        }
        Ok(Limiting::Queue(queuing))
    }
}
