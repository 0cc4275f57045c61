//! Host ports that may be given up.

use std::collections::BTreeMap;

use bayplan_model::pod::{Container, ContainerPort};

use super::{RELAXATIONS_MAX, relaxation};
use crate::changes::obstacles::Obstacles;
use crate::changes::trial::{Draft, Trial};
use crate::changes::{Change, cost, json_ops};

/// A host port of the pod: the list and index of its container, its own index, and its number.
type HostPort = (&'static str, usize, usize, i32);

/// Changes that give up the host ports which are taken on some node.
pub(in crate::changes) fn changes(trial: &mut Trial<'_>, obstacles: &Obstacles) -> Vec<Change> {
    drafts(trial, obstacles).into_iter().filter_map(|draft| trial.prove(draft)).collect()
}

/// Drafts that give up the host ports which are taken on some node, fewest first.
pub(in crate::changes) fn drafts(trial: &Trial<'_>, obstacles: &Obstacles) -> Vec<Draft> {
    let pod = trial.pod.clone();
    let containers = pod.spec.containers.iter().enumerate().map(|(at, container)| ("containers", at, container));
    let init = pod.spec.init_containers.iter().enumerate().filter(|(_, container)| container.is_sidecar());
    let all: Vec<(&'static str, usize, &Container)> =
        containers.chain(init.map(|(at, container)| ("initContainers", at, container))).collect();
    let ports: Vec<(HostPort, &ContainerPort)> = all
        .into_iter()
        .flat_map(|(list, at, container)| {
            let ports = container.ports.iter().enumerate().filter(|(_, port)| port.host_port > 0);
            ports.map(move |(index, port)| ((list, at, index, port.host_port), port))
        })
        .collect();
    let mut ways: BTreeMap<Vec<HostPort>, usize> = BTreeMap::new();
    for refused in obstacles.refused_only_by(&["NodePorts"]) {
        let Some(node) = refused.info(trial.state) else { continue };
        let taken = ports.iter().filter(|(_, port)| node.used_ports.conflicts(port)).map(|(place, _)| *place);
        *ways.entry(taken.collect()).or_default() += 1;
    }
    let mut ways: Vec<(Vec<HostPort>, usize)> = ways.into_iter().filter(|(taken, _)| !taken.is_empty()).collect();
    ways.sort_by_key(|(taken, nodes)| (taken.len(), std::cmp::Reverse(*nodes)));
    ways.truncate(RELAXATIONS_MAX);
    ways.into_iter().map(|(taken, _)| draft(&taken)).collect()
}

fn draft(taken: &[HostPort]) -> Draft {
    let remove = |(list, at, index, _): &HostPort| {
        json_ops::remove(&["spec", list, &at.to_string(), "ports", &index.to_string(), "hostPort"])
    };
    let numbers: Vec<String> = taken.iter().map(|(_, _, _, number)| number.to_string()).collect();
    let plural = if numbers.len() > 1 { "ports" } else { "port" };
    let summary = format!("do not open the host {plural} {}", numbers.join(", "));
    let cost = cost::PREFERENCE.saturating_mul(taken.len() as u64);
    relaxation(cost, summary, taken.iter().map(remove).collect())
}
