//! The requests of a claim, with their selectors compiled.

use std::sync::Arc;

use bayplan_model::resource_claim::{DeviceRequest, DeviceSubRequest, ResourceClaim};
use bayplan_model::resource_slice::{DeviceClass, DeviceSelector};
use rustc_hash::FxHashMap;

use super::cel::{Error, Program};
use crate::cluster::devices::PublishedSlice;

/// An expression and the result of its compilation.
pub(super) struct Compiled {
    expression: Box<str>,
    program: Result<Program, Error>,
}

/// A selector; none for one of unknown type.
type Selector = Option<Arc<Compiled>>;

/// How many compiled expressions are kept. A cluster has a handful, and one compiles in some ten microseconds.
const COMPILED_MAX: usize = 1024;

/// Compiles every expression once.
#[derive(Default)]
pub(super) struct Compiler(FxHashMap<Box<str>, Arc<Compiled>>);

impl Compiler {
    fn expression(&mut self, expression: &str) -> Arc<Compiled> {
        if let Some(known) = self.0.get(expression) {
            return known.clone();
        }
        if self.0.len() >= COMPILED_MAX {
            self.0.clear();
        }
        let compiled = Arc::new(Compiled { expression: expression.into(), program: Program::compile(expression) });
        self.0.insert(expression.into(), compiled.clone());
        compiled
    }

    fn compile(&mut self, selectors: &[DeviceSelector]) -> Vec<Selector> {
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
    class_selectors: Vec<Selector>,
    selectors: Vec<Selector>,
}

impl Alternative {
    /// The first selector of unknown type.
    pub(super) fn unknown_selector(&self) -> Option<usize> {
        self.selectors.iter().position(Option::is_none)
    }

    /// Whether the selectors of class and request match a device.
    pub(super) fn selects(&self, claim: &ResourceClaim, of: &PublishedSlice, device: usize) -> Result<bool, String> {
        let class = || format!("class {}", self.class.as_ref().map_or("", |class| class.metadata.name.as_str()));
        let claim = || format!("claim {}", claim.metadata.key());
        Ok(all_match(&self.class_selectors, &class, of, device)? && all_match(&self.selectors, &claim, of, device)?)
    }
}

fn all_match(
    selectors: &[Selector],
    whose: &dyn Fn() -> String,
    of: &PublishedSlice,
    device: usize,
) -> Result<bool, String> {
    for (i, selector) in selectors.iter().enumerate() {
        let Some(compiled) = selector else { continue };
        let program = compiled.program.as_ref();
        let program = program.map_err(|error| format!("{}: selector #{i}: CEL compile error: {error}", whose()))?;
        let driver = &of.slice.spec.driver;
        let matches = of.selector_result(&compiled.expression, device, |device| program.matches(driver, device));
        if !matches.map_err(|error| format!("{}: selector #{i}: CEL runtime error: {error}", whose()))? {
            return Ok(false);
        }
    }
    Ok(true)
}
