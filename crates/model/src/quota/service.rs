//! What a service counts for.

use serde::Deserialize;

use super::{Usage, number};
use crate::meta::ObjectMeta;

pub(super) const NAMES: [&str; 3] = ["services", "services.nodeports", "services.loadbalancers"];

/// A service as quotas see it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "wire::Service")]
pub struct ServiceMeasure {
    /// Which one it is.
    pub metadata: ObjectMeta,
    /// How many ports of nodes it takes.
    pub node_ports: usize,
    /// Whether it takes a load balancer.
    pub load_balancer: bool,
}

impl ServiceMeasure {
    /// What it counts for.
    pub fn usage(&self) -> Usage {
        [
            ("count/services", 1),
            ("services", 1),
            ("services.nodeports", self.node_ports),
            ("services.loadbalancers", usize::from(self.load_balancer)),
        ]
        .map(|(name, count)| (name.to_owned(), number(count)))
        .into()
    }
}

mod wire {
    use crate::meta::ObjectMeta;
    use crate::view::views;

    views! {
        /// The JSON form of what is read.
        struct Service {
            metadata: ObjectMeta,
            spec: ServiceSpec,
        }

        struct ServiceSpec {
            #[serde(rename = "type")]
            kind: String,
            ports: Vec<ServicePort>,
            allocate_load_balancer_node_ports: Option<bool>,
        }

        struct ServicePort {
            node_port: i32,
        }
    }

    impl From<Service> for super::ServiceMeasure {
        fn from(Service { metadata, spec }: Service) -> Self {
            let load_balancer = spec.kind == "LoadBalancer";
            let asked = spec.ports.iter().filter(|port| port.node_port != 0).count();
            let node_ports = match spec.kind.as_str() {
                "NodePort" => spec.ports.len(),
                "LoadBalancer" if spec.allocate_load_balancer_node_ports == Some(false) => asked,
                "LoadBalancer" => spec.ports.len(),
                _ => 0,
            };
            super::ServiceMeasure { metadata: super::super::identity(metadata), node_ports, load_balancer }
        }
    }
}
