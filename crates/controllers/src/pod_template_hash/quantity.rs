//! A quantity as Go's memory holds it: a number with a decimal scale, or a big decimal when that is too small, and the
//! text it was read from where that is its canonical form.

/// More digits than a quantity of any real thing has. Longer ones are dumped as they are written: working them out
/// takes time that grows with the square of the digits, and only the name of a ReplicaSet depends on it.
const DIGITS_MAX: usize = 100;

/// The limbs of a big number, the lowest first.
struct Limbs(Vec<u64>);

impl Limbs {
    fn of(digits: &str) -> Self {
        let mut limbs = Limbs(Vec::new());
        for digit in digits.bytes() {
            limbs.multiply_add(10, u64::from(digit.wrapping_sub(b'0')));
        }
        limbs
    }

    fn multiply_add(&mut self, factor: u64, add: u64) {
        let mut carry = u128::from(add);
        for limb in &mut self.0 {
            let product = u128::from(*limb) * u128::from(factor) + carry;
            // The lower half is the limb, the upper half goes on.
            *limb = (product & u128::from(u64::MAX)) as u64;
            carry = product >> 64;
        }
        if carry > 0 {
            self.0.push((carry & u128::from(u64::MAX)) as u64);
        }
    }

    fn scale(mut self, factor: u64, times: u32) -> Self {
        for _ in 0..times {
            self.multiply_add(factor, 0);
        }
        self
    }
}

/// How a quantity's suffix multiplies it.
enum Suffix {
    /// A power of ten, and the name of the format.
    Ten(i32, &'static str),
    /// A power of two.
    Two(u32),
}

fn suffix(text: &str) -> Option<Suffix> {
    const DECIMAL: &str = "DecimalSI";
    Some(match text {
        "n" => Suffix::Ten(-9, DECIMAL),
        "u" => Suffix::Ten(-6, DECIMAL),
        "m" => Suffix::Ten(-3, DECIMAL),
        "" => Suffix::Ten(0, DECIMAL),
        "k" => Suffix::Ten(3, DECIMAL),
        "M" => Suffix::Ten(6, DECIMAL),
        "G" => Suffix::Ten(9, DECIMAL),
        "T" => Suffix::Ten(12, DECIMAL),
        "P" => Suffix::Ten(15, DECIMAL),
        "E" => Suffix::Ten(18, DECIMAL),
        "Ki" => Suffix::Two(10),
        "Mi" => Suffix::Two(20),
        "Gi" => Suffix::Two(30),
        "Ti" => Suffix::Two(40),
        "Pi" => Suffix::Two(50),
        "Ei" => Suffix::Two(60),
        exponent => Suffix::Ten(exponent.strip_prefix(['e', 'E'])?.parse().ok()?, "DecimalExponent"),
    })
}

/// Appends the dump of a quantity; the empty text is one that was never set.
pub(super) fn dump(out: &mut String, text: &str) {
    match text {
        "" => return write(out, 0, 0, None, "", ""),
        "0" => return write(out, 0, 0, None, "0", "DecimalSI"),
        _ => {}
    }
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, rest) = unsigned.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let all = format!("{whole}{fraction}");
    let Some(suffix) = suffix(rest).filter(|_| all.len() <= DIGITS_MAX && fraction.len() <= 9) else {
        return write(out, 0, 0, None, text, "");
    };
    match small(&suffix, whole, fraction, &all) {
        Some((value, scale, canonical)) => {
            write(out, sign * value, scale, None, if canonical { text } else { "" }, format_of(&suffix));
        }
        None => {
            let unscaled = match suffix {
                Suffix::Ten(exponent, _) => {
                    let tens = exponent + 9 - fraction.len() as i32;
                    let tens = u32::try_from(tens).unwrap_or(0).min(DIGITS_MAX as u32);
                    Limbs::of(&all).scale(10, tens)
                }
                Suffix::Two(exponent) => Limbs::of(&all).scale(2, exponent).scale(10, 9 - fraction.len() as u32),
            };
            write(out, 0, 0, Some((sign < 0, unscaled)), "", format_of(&suffix));
        }
    }
}

fn format_of(suffix: &Suffix) -> &'static str {
    match suffix {
        Suffix::Ten(_, format) => format,
        Suffix::Two(_) => "BinarySI",
    }
}

/// The value and scale of a number that 64 bits hold for sure, and whether its text is the canonical one.
fn small(suffix: &Suffix, whole: &str, fraction: &str, all: &str) -> Option<(i64, i32, bool)> {
    let value: i64 = all.parse().ok()?;
    match suffix {
        Suffix::Ten(exponent, _) => {
            let scale = exponent.checked_sub(fraction.len() as i32)?;
            let fits = all.len() <= 18 && scale >= -9;
            let canonical = scale % 3 == 0 && !all.ends_with("000") && !all.starts_with('0');
            fits.then_some((value, scale, canonical))
        }
        Suffix::Two(exponent) => {
            // What the power takes of the 15 digits that are safe: three for each ten bits.
            let taken = (exponent * 3 / 10) as usize;
            let fits = fraction.is_empty() && whole.len() + taken < 15;
            fits.then_some((value << exponent, 0, exponent % 10 == 0 && value & 7 != 0))
        }
    }
}

fn write(out: &mut String, value: i64, scale: i32, big: Option<(bool, Limbs)>, text: &str, format: &str) {
    let big = match big {
        None => "<nil>".to_owned(),
        Some((negative, Limbs(limbs))) => {
            let limbs: Vec<String> = limbs.iter().map(u64::to_string).collect();
            let limbs = limbs.join(" ");
            format!("{{unscaled:(big.Int){{neg:(bool){negative} abs:(big.nat)[{limbs}]}} scale:(inf.Scale)9}}")
        }
    };
    out.push_str(&format!(
        "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
         d:(resource.infDecAmount){{Dec:(*inf.Dec){big}}} s:(string){text} Format:(resource.Format){format}}}"
    ));
}
