//! Calls in batches of 1, 2, 4, 8…: when the first pod is refused (quota, admission), the other thousands are not
//! tried. Upstream's `slowStartBatch`.

use std::future::Future;

use futures::future::join_all;

/// Runs up to `count` calls, `initial` first and then twice as many each time, until a batch has a failure.
/// Returns how many succeeded, and the first error.
pub async fn slow_start<E, F: Future<Output = Result<(), E>>>(
    count: usize,
    initial: usize,
    mut call: impl FnMut() -> F,
) -> (usize, Result<(), E>) {
    let mut successes = 0;
    let mut remaining = count;
    let mut batch = remaining.min(initial);
    while batch > 0 {
        let answers = join_all(std::iter::repeat_with(&mut call).take(batch)).await;
        successes += answers.iter().filter(|answer| answer.is_ok()).count();
        if let Some(error) = answers.into_iter().find_map(Result::err) {
            return (successes, Err(error));
        }
        remaining -= batch;
        batch = remaining.min(batch * 2);
    }
    (successes, Ok(()))
}
