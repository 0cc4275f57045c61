//! Whether etcd can be written to, and what its operator should know.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bayplan_store::WriteError;
use tokio::time::Instant;

use crate::client::proto::{AlarmRequest, AlarmResponse, AlarmType};
use crate::client::{ALARM, NO_SPACE};
use crate::store::Inner;

/// How long etcd may take to say that it is well, as upstream's check.
const HEALTH_DEADLINE: Duration = Duration::from_secs(2);
/// How long the answer about alarms is good for, so that nobody can make etcd busy by asking.
const ALARMS_KEPT: Duration = Duration::from_secs(1);

/// What is known of etcd's alarms.
#[derive(Default)]
pub(crate) struct Health(Mutex<Known>);

#[derive(Clone, Copy, Default)]
struct Known {
    asked: Option<Instant>,
    alarms: Alarms,
}

/// etcd's alarms.
#[derive(Clone, Copy, Default)]
struct Alarms {
    no_space: bool,
    corrupt: bool,
}

impl Health {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const CORRUPT: &str =
    "etcd has the alarm CORRUPT: its members disagree about the data; restore the member that is wrong";

impl Inner {
    /// Whether etcd has a quorum and takes writes.
    pub(crate) async fn writable(&self) -> Result<(), WriteError> {
        let checked = tokio::time::timeout(HEALTH_DEADLINE, async {
            let unavailable = |error: bayplan_store::ReadError| WriteError::Unavailable(error.to_string());
            self.freshness.revision().await.map_err(unavailable)?;
            self.alarms().await
        });
        let late = || format!("etcd has not answered a linearizable read within {} s", HEALTH_DEADLINE.as_secs());
        let alarms = checked.await.unwrap_or_else(|_| Err(WriteError::Unavailable(late())))?;
        if alarms.no_space {
            return Err(WriteError::Unavailable(NO_SPACE.to_owned()));
        }
        Ok(())
    }

    async fn alarms(&self) -> Result<Alarms, WriteError> {
        let known = *self.health.known();
        if known.asked.is_some_and(|asked| asked.elapsed() < ALARMS_KEPT) {
            return Ok(known.alarms);
        }
        let answer: Result<AlarmResponse, _> = self.client.call(ALARM.within(HEALTH_DEADLINE), AlarmRequest {}).await;
        let answer = answer.map_err(|error| WriteError::Unavailable(error.to_string()))?;
        let raised = |alarm: AlarmType| answer.alarms.iter().any(|member| member.alarm == alarm as i32);
        let alarms = Alarms { no_space: raised(AlarmType::NoSpace), corrupt: raised(AlarmType::Corrupt) };
        *self.health.known() = Known { asked: Some(Instant::now()), alarms };
        Ok(alarms)
    }

    /// What an operator should act on.
    pub(crate) fn warning(&self) -> Option<String> {
        if let Some(failure) = self.mirror.failure() {
            return Some(failure.to_owned());
        }
        let known = self.health.known().alarms;
        let alarm = if known.no_space { Some(NO_SPACE) } else { known.corrupt.then_some(CORRUPT) };
        alarm.map(ToOwned::to_owned).or_else(|| self.old_version.clone())
    }
}
