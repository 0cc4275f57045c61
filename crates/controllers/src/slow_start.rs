//! Calls in batches of 1, 2, 4, 8…: when the first pod is refused (quota, admission), the other thousands are not
//! tried. Upstream's `slowStartBatch`.

use std::future::Future;

use futures::future::join_all;

/// At most this many calls at a time, so that one object cannot keep the API server busy while others wait.
pub const BATCH_MAX: usize = 500;

/// Runs up to `count` calls, `initial` first and then twice as many each time, until a batch has a failure. Each call
/// is given its number, from 0. Returns how many succeeded, and the first error.
pub async fn slow_start<E, F: Future<Output = Result<(), E>>>(
    count: usize,
    initial: usize,
    call: impl FnMut(usize) -> F,
) -> (usize, Result<(), E>) {
    let (successes, errors) = in_batches(count, initial, call).await;
    (successes, errors.into_iter().next().map_or(Ok(()), Err))
}

/// The same, with all errors of the batch that failed.
pub async fn in_batches<T, E, F: Future<Output = Result<T, E>>>(
    count: usize,
    initial: usize,
    mut call: impl FnMut(usize) -> F,
) -> (usize, Vec<E>) {
    let (mut successes, mut started) = (0, 0);
    let mut batch = count.min(initial);
    while batch > 0 {
        let answers = join_all((started..started + batch).map(&mut call)).await;
        successes += answers.iter().filter(|answer| answer.is_ok()).count();
        let errors: Vec<E> = answers.into_iter().filter_map(Result::err).collect();
        if !errors.is_empty() {
            return (successes, errors);
        }
        started += batch;
        batch = (count - started).min(batch * 2).min(BATCH_MAX);
    }
    (successes, Vec::new())
}
