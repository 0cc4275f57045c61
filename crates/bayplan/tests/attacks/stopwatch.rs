//! Questions asked again and again beside an attack, and how long their answers took.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;

/// How soon those who do no harm must be answered.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(1);
/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(50);
/// How long is waited for an answer before it counts as missing.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a measurement may be repeated: on a machine that does other things too, one round may be late.
pub(crate) const ROUNDS: usize = 3;

/// What a series of questions was answered.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) count: usize,
    pub(crate) slowest: Duration,
    /// What was answered in place of what was hoped for.
    pub(crate) failures: Vec<String>,
}

impl Answers {
    /// All answers were right, and soon.
    pub(crate) fn are_prompt(&self) -> bool {
        self.count > 0 && self.failures.is_empty() && self.slowest <= ANSWER_MAX
    }
}

/// Asks once, and again until the attack is over.
pub(crate) async fn ask_beside<T>(
    attack: impl Future<Output = T>,
    mut question: impl AsyncFnMut() -> Result<(), String>,
) -> (T, Answers) {
    let mut answers = Answers::default();
    let over = Cell::new(false);
    let asking = async {
        loop {
            let asked = Instant::now();
            let answer = tokio::time::timeout(PATIENCE, question()).await;
            if let Err(failure) = answer.unwrap_or_else(|_| Err(format!("no answer in {PATIENCE:?}"))) {
                answers.failures.push(failure);
            }
            answers.count += 1;
            answers.slowest = answers.slowest.max(asked.elapsed());
            if over.get() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let attack = async {
        let result = attack.await;
        over.set(true);
        result
    };
    let (result, ()) = tokio::join!(attack, asking);
    (result, answers)
}

/// A probe of the API server, on a connection of its own.
pub(crate) async fn probe(cluster: &Cluster, path: &str) -> Result<(), String> {
    read(cluster, path, &[], "").await
}

/// A GET that must be answered with 200.
pub(crate) async fn read(cluster: &Cluster, path: &str, headers: &[(&str, &str)], token: &str) -> Result<(), String> {
    match cluster.ask(&format!("GET {path}"), headers, token, b"").await {
        Ok((200, _)) => Ok(()),
        Ok((code, _)) => Err(format!("{path} {headers:?}: {code}")),
        Err(error) => Err(format!("{path} {headers:?}: {error}")),
    }
}
