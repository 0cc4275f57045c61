//! The first screen of `bayplan up` and `bayplan apiserver`: what runs, where it is, and what to try.

use std::io::{Result, Write};
use std::time::Duration;

use bayplan_bench::report::grouped;
use bayplan_sim::{FleetConfig, NodeTemplate};

use crate::cluster::Cluster;
use crate::data_folder::DataFolder;

/// Zones that are listed by name; of more, the first and the last are.
const ZONES_LISTED_MAX: usize = 5;

/// Greets once the cluster and all its nodes are there; without a fleet, when another process simulates them.
pub(crate) fn write_up(
    out: &mut impl Write,
    cluster: &Cluster,
    page: Option<&str>,
    fleet: Option<&FleetConfig>,
    took: Duration,
) -> Result<()> {
    writeln!(out, "Bayplan is up after {}.\n", seconds(took))?;
    write_locations(out, cluster)?;
    if let Some(url) = page {
        writeln!(out, "  page        {url}")?;
    }
    match fleet {
        Some(fleet) => write_nodes(out, fleet)?,
        None => writeln!(out, "  nodes       those of the cluster; this process stands by to simulate them")?,
    }
    writeln!(out, "\nTry:")?;
    if let Some(kubeconfig) = &cluster.kubeconfig {
        writeln!(out, "  export KUBECONFIG={}", kubeconfig.display())?;
    }
    writeln!(out, "  kubectl create deployment web --image=nginx --replicas=3")?;
    writeln!(out, "  kubectl get pods -o wide -w")?;
    match cluster.folder {
        _ if cluster.etcd.is_some() => writeln!(out, "\nCtrl-C stops this member; the objects stay in etcd.")?,
        DataFolder::Kept(_) => {
            writeln!(out, "\nCtrl-C stops it; the next `bayplan up` continues with the same objects.")?
        }
        DataFolder::InMemory(_) => writeln!(out, "\nCtrl-C stops it and forgets everything.")?,
    }
    out.flush()
}

/// Greets once the API server answers.
pub(crate) fn write_apiserver(out: &mut impl Write, cluster: &Cluster) -> Result<()> {
    writeln!(out, "Bayplan's API server is up.\n")?;
    write_locations(out, cluster)?;
    writeln!(out, "\nCtrl-C stops it.")?;
    out.flush()
}

fn write_locations(out: &mut impl Write, cluster: &Cluster) -> Result<()> {
    if let Some(kubeconfig) = &cluster.kubeconfig {
        writeln!(out, "  kubeconfig  {}", kubeconfig.display())?;
    }
    writeln!(out, "  API server  {}", cluster.url)?;
    if let Some(etcd) = &cluster.etcd {
        writeln!(out, "  objects     in etcd at {etcd}")?;
    }
    match &cluster.folder {
        DataFolder::Kept(path) => writeln!(out, "  data        {}", path.display()),
        DataFolder::InMemory(_) => writeln!(out, "  data        in memory only"),
    }
}

fn write_nodes(out: &mut impl Write, fleet: &FleetConfig) -> Result<()> {
    let template = &fleet.template;
    let (names, each) = match fleet.first_and_last() {
        None => return writeln!(out, "  nodes       none: pods stay pending"),
        Some((first, _)) if fleet.count() == 1 => (first, ""),
        Some((first, last)) => (format!("{first} … {last}"), " each"),
    };
    let NodeTemplate { cpu, memory, pods, .. } = template;
    writeln!(out, "  nodes       {names} (simulated): {cpu} cpu, {memory} memory, {pods} pods{each}")?;
    if !fleet.further.is_empty() {
        let (all, kept) = (grouped(fleet.count() as u64), grouped(fleet.further.len() as u64));
        writeln!(
            out,
            "              {all} in all, {kept} of them from an earlier run with more nodes; to remove one:"
        )?;
        writeln!(out, "              kubectl delete node NAME")?;
    }
    let used = &template.zones[..template.zones.len().min(fleet.count())];
    // The labels a placement can use, by name where their values differ from node to node.
    if used.is_empty() {
        writeln!(out, "  zones       none")?;
        writeln!(out, "  labels      kubernetes.io/hostname,")?;
    } else {
        writeln!(out, "  zones       {} (in {})", listed(used), template.region)?;
        writeln!(
            out,
            "  labels      topology.kubernetes.io/zone, topology.kubernetes.io/region, kubernetes.io/hostname,"
        )?;
    }
    writeln!(out, "              kubernetes.io/os=linux, kubernetes.io/arch=amd64, bayplan.dev/simulated=true")
}

pub(crate) fn listed(zones: &[String]) -> String {
    match zones {
        [first, .., last] if zones.len() > ZONES_LISTED_MAX => format!("{first} … {last}"),
        zones => zones.join(", "),
    }
}

pub(crate) fn seconds(took: Duration) -> String {
    match took.as_millis() {
        millis @ ..1000 => format!("{millis} ms"),
        _ => format!("{:.1} s", took.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_zones_are_listed_and_of_many_the_first_and_the_last() {
        for (count, expected) in [(1, "zone-1"), (3, "zone-1, zone-2, zone-3"), (1000, "zone-1 … zone-1000")] {
            assert_eq!(listed(&NodeTemplate::zones(count)), expected);
        }
    }

    #[test]
    fn a_start_is_timed_in_the_unit_a_person_would_use() {
        assert_eq!(seconds(Duration::from_millis(240)), "240 ms");
        assert_eq!(seconds(Duration::from_millis(4_170)), "4.2 s");
    }
}
