//! The requests of a claim, with their selectors compiled.

use std::sync::{Arc, OnceLock};

use bayplan_cel::device::Selector;
use bayplan_cel::{Error, Regexes};
use bayplan_model::keyed::KeyedMap;
use bayplan_model::resource_claim::{DeviceRequest, DeviceSubRequest, ResourceClaim};
use bayplan_model::resource_slice::{DeviceClass, DeviceSelector};

use super::work::{COMPILED_BYTE, EVALUATION, Work};
use crate::cluster::devices::PublishedSlice;

/// An expression; compiled when it is first needed.
#[derive(Debug)]
pub(super) struct Compiled {
    expression: Arc<str>,
    regexes: Arc<Regexes>,
    program: OnceLock<Result<Selector, String>>,
}

/// A selector of a request; none for one of unknown type.
type RequestSelector = Option<Arc<Compiled>>;

/// How many expressions are kept compiled; a cluster has a handful.
const COMPILED_MAX: usize = 256;
/// How long the expressions that are kept compiled may be together. A compiled one takes up to some hundred times its
/// text.
const COMPILED_BYTES_MAX: usize = 256 << 10;

/// Keeps compiled expressions, those that were used last.
#[derive(Default)]
pub(super) struct Compiler {
    kept: KeyedMap<Arc<str>, (u64, Arc<Compiled>)>,
    bytes: usize,
    clock: u64,
    regexes: Arc<Regexes>,
}

impl Compiler {
    fn expression(&mut self, expression: &str) -> Arc<Compiled> {
        self.clock += 1;
        if let Some((used, known)) = self.kept.get_mut(expression) {
            *used = self.clock;
            return known.clone();
        }
        self.bytes += expression.len();
        while self.kept.len() >= COMPILED_MAX || (self.bytes > COMPILED_BYTES_MAX && !self.kept.is_empty()) {
            let oldest = self.kept.iter().min_by_key(|(_, (used, _))| *used).map(|(text, _)| text.clone());
            let Some(oldest) = oldest else { break };
            self.kept.remove(&oldest);
            self.bytes -= oldest.len();
        }
        let text: Arc<str> = expression.into();
        let regexes = Arc::clone(&self.regexes);
        let compiled = Arc::new(Compiled { expression: text.clone(), regexes, program: OnceLock::new() });
        self.kept.insert(text, (self.clock, compiled.clone()));
        compiled
    }

    fn compile(&mut self, selectors: &[DeviceSelector]) -> Vec<RequestSelector> {
        selectors.iter().map(|selector| Some(self.expression(&selector.cel.as_ref()?.expression))).collect()
    }

    /// Prepares a claim for allocation; `class` looks classes up.
    pub(super) fn claim(
        &mut self,
        claim: Arc<ResourceClaim>,
        class: impl Fn(&str) -> Option<Arc<DeviceClass>>,
    ) -> ClaimRequests {
        let requests = claim.spec.devices.requests.iter().map(|request| self.request(request, &class)).collect();
        ClaimRequests { requests, claim }
    }

    fn request(&mut self, request: &DeviceRequest, class: &impl Fn(&str) -> Option<Arc<DeviceClass>>) -> Request {
        let is_list = !request.first_available.is_empty();
        let alternatives = if is_list { request.first_available.as_slice() } else { request.exactly.as_slice() };
        let alternatives = alternatives.iter().map(|wanted| {
            let class = class(&wanted.device_class_name);
            let full_name = if is_list { format!("{}/{}", request.name, wanted.name) } else { request.name.clone() };
            Alternative {
                // `firstAvailable` has no adminAccess.
                admin_access: !is_list && wanted.admin_access == Some(true),
                short_name: if is_list { wanted.name.clone() } else { request.name.clone() },
                full_name,
                class_selectors: class.iter().flat_map(|class| self.compile(&class.spec.selectors)).collect(),
                selectors: self.compile(&wanted.selectors),
                class,
                wanted: wanted.clone(),
            }
        });
        Request { name: request.name.clone(), alternatives: alternatives.collect() }
    }
}

/// A claim and its requests.
pub(super) struct ClaimRequests {
    pub(super) claim: Arc<ResourceClaim>,
    pub(super) requests: Vec<Request>,
}

/// A request: the first alternative that leads to a solution is taken.
pub(super) struct Request {
    pub(super) name: String,
    pub(super) alternatives: Vec<Alternative>,
}

/// One way to satisfy a request.
pub(super) struct Alternative {
    pub(super) wanted: DeviceSubRequest,
    /// The name in messages.
    pub(super) short_name: String,
    /// The name in results: `request` or `request/alternative`.
    pub(super) full_name: String,
    pub(super) admin_access: bool,
    pub(super) class: Option<Arc<DeviceClass>>,
    class_selectors: Vec<RequestSelector>,
    selectors: Vec<RequestSelector>,
}

impl Alternative {
    /// The first selector of unknown type.
    pub(super) fn unknown_selector(&self) -> Option<usize> {
        self.selectors.iter().position(Option::is_none)
    }

    /// Whether the selectors of class and request match a device.
    pub(super) fn selects(
        &self,
        claim: &ResourceClaim,
        of: &PublishedSlice,
        device: usize,
        work: &mut Work,
    ) -> Result<bool, Refusal> {
        let class = || format!("class {}", self.class.as_ref().map_or("", |class| class.metadata.name.as_str()));
        let claim = || format!("claim {}", claim.metadata.key());
        Ok(all_match(&self.class_selectors, &class, of, device, work)?
            && all_match(&self.selectors, &claim, of, device, work)?)
    }
}

/// Why it is not known whether selectors match.
#[derive(Debug)]
pub(super) enum Refusal {
    /// There is no work left for it.
    TimedOut,
    Error(String),
}

impl Compiled {
    /// The compiled selector, or why there is none.
    fn selector(&self, work: &mut Work) -> Result<&Result<Selector, String>, Refusal> {
        if self.program.get().is_none() && !work.spend(self.expression.len() as u64 * COMPILED_BYTE) {
            return Err(Refusal::TimedOut);
        }
        Ok(self.program.get_or_init(|| {
            let selector =
                Selector::compile(&self.expression, true, &self.regexes).map_err(|error| error.to_string())?;
            match selector.function_not_run() {
                Some(function) => Err(format!("function '{function}' is not supported")),
                None => Ok(selector),
            }
        }))
    }

    /// Whether a device matches, and if that is an error, which.
    fn matches(&self, of: &PublishedSlice, device: usize, work: &mut Work) -> Result<Result<bool, String>, Refusal> {
        // What was answered before is found by the text of the expression.
        if !work.spend(1 + self.expression.len() as u64 / 128) {
            return Err(Refusal::TimedOut);
        }
        if let Some(known) = of.selector_result(&self.expression, device) {
            return Ok(known);
        }
        let selector = match self.selector(work)? {
            Ok(selector) => selector,
            Err(error) => return Ok(Err(format!("CEL compile error: {error}"))),
        };
        let (answer, cost) = selector.matches(&of.slice.spec.driver, &of.slice.spec.devices[device], work.left());
        let is_left = work.spend(cost.saturating_add(EVALUATION));
        let answer = match answer {
            Err(Error::Interrupted) => return Err(Refusal::TimedOut),
            answer => answer.map_err(|error| format!("CEL runtime error: {error}")),
        };
        of.keep_selector_result(&self.expression, device, answer.clone());
        if is_left { Ok(answer) } else { Err(Refusal::TimedOut) }
    }
}

fn all_match(
    selectors: &[RequestSelector],
    whose: &dyn Fn() -> String,
    of: &PublishedSlice,
    device: usize,
    work: &mut Work,
) -> Result<bool, Refusal> {
    for (i, selector) in selectors.iter().enumerate() {
        let Some(compiled) = selector else { continue };
        let matches = compiled.matches(of, device, work)?;
        if !matches.map_err(|error| Refusal::Error(format!("{}: selector #{i}: {error}", whose())))? {
            return Ok(false);
        }
    }
    Ok(true)
}
