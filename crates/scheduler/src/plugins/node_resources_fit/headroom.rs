//! The batch form: many nodes at once, for pods that request cpu, memory and ephemeral storage only.

use bayplan_model::resources::{Amounts, Resource};

use super::State;
use super::scoring::{ScoredResource, Share, Strategy};
use crate::cluster::{Headroom, ResourceHeadroom};
use crate::framework::{HeadroomPlugin, add_scores};

/// What a pod needs to be left of a node, and how nodes are scored for it.
pub(super) struct FitByHeadroom {
    /// Cpu that must be left, in thousandths; see [`or_anything`].
    milli_cpu: i64,
    /// Memory that must be left, in bytes.
    memory: i64,
    /// Ephemeral storage that must be left, in bytes.
    ephemeral_storage: i64,
    scored: Vec<ScoredHeadroom>,
    strategy: Strategy,
}

/// Cpu or memory, as far as it counts in the score.
#[derive(Clone, Copy)]
struct ScoredHeadroom {
    /// Otherwise it is memory.
    is_cpu: bool,
    wanted: i64,
    weight: i64,
}

impl FitByHeadroom {
    /// The batch form for a prepared pod; none when the pod or the configuration needs more than headroom holds.
    pub(super) fn new(state: &State, strategy: &Strategy) -> Option<Self> {
        let is_in_headroom = |scored: &ScoredResource| matches!(scored.resource, Resource::Cpu | Resource::Memory);
        let (request, score) = (&state.request, &state.score);
        if !request.scalars.is_empty() || !score.devices.is_empty() || !score.resources.iter().all(is_in_headroom) {
            return None;
        }
        let &Amounts { milli_cpu, memory, ephemeral_storage, .. } = request;
        let [milli_cpu, memory, ephemeral_storage] = [milli_cpu, memory, ephemeral_storage].map(or_anything);
        let scored = |scored: &ScoredResource| ScoredHeadroom {
            is_cpu: scored.resource == Resource::Cpu,
            wanted: scored.wanted,
            weight: scored.weight,
        };
        let scored = score.resources.iter().map(scored).collect();
        Some(FitByHeadroom { milli_cpu, memory, ephemeral_storage, scored, strategy: strategy.clone() })
    }

    fn score_one(&self, headroom: &Headroom) -> i64 {
        let share = |&ScoredHeadroom { is_cpu, wanted, weight }: &ScoredHeadroom| {
            let ResourceHeadroom { allocatable, non_zero_requested, .. } =
                if is_cpu { headroom.cpu } else { headroom.memory };
            let requested = non_zero_requested.saturating_add(wanted);
            (allocatable != 0).then_some(Share { capacity: allocatable, requested, weight })
        };
        self.strategy.score(self.scored.iter().filter_map(share))
    }
}

impl HeadroomPlugin for FitByHeadroom {
    fn filter(&self, headrooms: &[Headroom], sums: &mut [Option<i64>]) {
        let left = |share: &ResourceHeadroom| share.allocatable.saturating_sub(share.requested);
        for (sum, headroom) in sums.iter_mut().zip(headrooms) {
            // Without short circuits, because nearly all nodes pass.
            let passes = (headroom.pods_left > 0)
                & (self.milli_cpu <= left(&headroom.cpu))
                & (self.memory <= left(&headroom.memory))
                & (self.ephemeral_storage <= headroom.ephemeral_storage_left);
            if !passes {
                *sum = None;
            }
        }
    }

    fn score(&self, headrooms: &[Headroom], weight: i64, sums: &mut [Option<i64>]) {
        let is_plain = |scored: &ScoredHeadroom, is_cpu| scored.is_cpu == is_cpu && scored.weight == 1;
        match (&self.strategy, &self.scored[..]) {
            // The default configuration, which most clusters have.
            (Strategy::LeastAllocated, [cpu, memory])
                if is_plain(cpu, true) && is_plain(memory, false) && are_small([cpu.wanted, memory.wanted]) =>
            {
                add_scores(headrooms, weight, sums, |headroom| {
                    let score = least_allocated(headroom, cpu.wanted, memory.wanted);
                    score.unwrap_or_else(|| self.score_one(headroom))
                });
            }
            _ => add_scores(headrooms, weight, sums, |headroom| self.score_one(headroom)),
        }
    }
}

/// LeastAllocated of cpu and memory with equal weights, in 64-bit arithmetic; none where that might overflow.
fn least_allocated(headroom: &Headroom, cpu_wanted: i64, memory_wanted: i64) -> Option<i64> {
    let Headroom { cpu, memory, .. } = headroom;
    let amounts = [cpu.allocatable, cpu.non_zero_requested, memory.allocatable, memory.non_zero_requested];
    if !are_small(amounts) || cpu.allocatable == 0 || memory.allocatable == 0 {
        return None;
    }
    let percent_left = |share: &ResourceHeadroom, wanted: i64| {
        let left = share.allocatable - (share.non_zero_requested + wanted);
        left.max(0) as u64 * 100 / share.allocatable as u64
    };
    Some(((percent_left(cpu, cpu_wanted) + percent_left(memory, memory_wanted)) / 2) as i64)
}

/// What must be left of a resource: any amount, even a negative one, when the pod requests none of it.
fn or_anything(wanted: i64) -> i64 {
    if wanted > 0 { wanted } else { i64::MIN }
}

/// Whether sums of two of these amounts, and a hundred times their difference, fit into 64 bits.
fn are_small<const N: usize>(amounts: [i64; N]) -> bool {
    amounts.into_iter().fold(0, |bits, amount| bits | amount) as u64 >> 56 == 0
}
