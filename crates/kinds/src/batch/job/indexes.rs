//! Indexes of a job as text: `1,3-5,7`.

/// The first and last index of `3-5` or `7`.
fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let parse = |part: &str| {
        let index = part.parse::<i64>().map_err(|_| format!("cannot convert string to integer for index: {part:?}"))?;
        if index >= completions { Err(format!("too large index: {part:?}")) } else { Ok(index) }
    };
    match text.split('-').collect::<Vec<_>>()[..] {
        [only] => parse(only).map(|index| (index, index)),
        [first, last] => {
            let (first, last) = (parse(first)?, parse(last)?);
            if first >= last {
                return Err(format!("non-increasing order, previous: {first}, current: {last}"));
            }
            Ok((first, last))
        }
        _ => Err(format!(
            "the fragment {text:?} violates the requirement that an index interval can have at most two parts \
             separated by '-'"
        )),
    }
}

/// How many indexes the text names, each below the completions.
pub(super) fn count(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut total, mut previous) = (0_i64, None);
    for part in text.split(',') {
        let (first, last) = interval(part, completions)?;
        if let Some(previous) = previous.filter(|previous| *previous >= first) {
            return Err(format!("non-increasing order, previous: {previous}, current: {first}"));
        }
        total = total.saturating_add(last - first + 1);
        previous = Some(last);
    }
    Ok(total)
}

/// The first index that two texts have in common; what is no interval is left out.
pub(super) fn common(a: &str, b: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (a, b) = (intervals(a), intervals(b));
    let (mut at, mut bt) = (0, 0);
    while let (Some((a_first, a_last)), Some((b_first, b_last))) = (a.get(at), b.get(bt)) {
        if a_first <= b_last && b_first <= a_last {
            return Some(*a_first.max(b_first));
        }
        if a_first <= b_first { at += 1 } else { bt += 1 }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_in_order_and_below_the_completions() {
        assert_eq!(count("0,2-4,6", 10), Ok(5));
        assert_eq!(count("", 10), Ok(0));
        for (text, why) in [
            ("a", "cannot convert string to integer for index: \"a\""),
            ("10", "too large index: \"10\""),
            ("3,2", "non-increasing order, previous: 3, current: 2"),
            ("4-4", "non-increasing order, previous: 4, current: 4"),
        ] {
            assert_eq!(count(text, 10), Err(why.to_owned()), "{text}");
        }
        assert_eq!(common("0-2,5", "3,4-6", 10), Some(5));
        assert_eq!(common("0-2", "3", 10), None);
    }
}
