//! Properties of quantities and selectors over random inputs.

use std::collections::BTreeMap;

use bayplan_model::{
    field_selector::FieldSelector,
    int_or_string::IntOrString,
    label_selector::Selector,
    quantity::{Quantity, scale},
};
use proptest::prelude::*;

/// Numbers in every spelling a quantity allows, up to beyond 64 bits.
fn quantity_text() -> impl Strategy<Value = String> {
    "[+-]?[0-9]{1,22}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,2})?"
}

fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map("[ab]", "[01x]?", 0..3)
}

fn requirement() -> impl Strategy<Value = String> {
    prop_oneof!["!?[ab]", "[ab] ?(=|==|!=) ?[01x]?", "[ab][<>][01]", "[ab] (in|notin) \\([01x]?(, ?[01x]){0,2}\\)",]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_printed_quantity_reads_as_the_same_amount(text in quantity_text()) {
        let mut quantity = Quantity::parse(&text).unwrap();
        let once = quantity.to_string();
        prop_assert_eq!(&Quantity::parse(&once).unwrap(), &quantity);
        // Without the text it was read from, the canonical form is a fixed point.
        quantity.add(&Quantity::ZERO);
        let canonical = quantity.to_string();
        let mut again = Quantity::parse(&canonical).unwrap();
        prop_assert_eq!(again.to_string(), canonical.clone());
        again.add(&Quantity::ZERO);
        prop_assert_eq!(again.to_string(), canonical);
    }

    #[test]
    fn subtraction_undoes_addition(a in quantity_text(), b in quantity_text()) {
        let (a, b) = (Quantity::parse(&a).unwrap(), Quantity::parse(&b).unwrap());
        let mut sum = a.clone();
        sum.add(&b);
        prop_assert_eq!(sum.cmp(&a) as i32, b.sign());
        sum.sub(&b);
        prop_assert_eq!(&sum, &a);
        let mut difference = a.clone();
        difference.sub(&b);
        prop_assert_eq!(difference.sign(), a.cmp(&b) as i32);
        difference.neg();
        prop_assert_eq!(difference.sign(), b.cmp(&a) as i32);
    }

    #[test]
    fn multiplication_is_repeated_addition(text in quantity_text()) {
        let quantity = Quantity::parse(&text).unwrap();
        let (mut product, mut sum) = (quantity.clone(), quantity.clone());
        product.mul(3);
        sum.add(&quantity);
        sum.add(&quantity);
        prop_assert_eq!(product, sum);
    }

    #[test]
    fn rounding_up_never_comes_nearer_to_zero(text in quantity_text(), scale in scale::NANO..scale::GIGA) {
        let quantity = Quantity::parse(&text).unwrap();
        let mut rounded = quantity.clone();
        let exact = rounded.round_up(scale);
        prop_assert_eq!(exact, rounded == quantity);
        if quantity.sign() >= 0 { prop_assert!(rounded >= quantity) } else { prop_assert!(rounded <= quantity) }
    }

    #[test]
    fn json_keeps_the_amount(text in quantity_text()) {
        let quantity = Quantity::parse(&text).unwrap();
        let json = serde_json::to_string(&quantity).unwrap();
        prop_assert_eq!(serde_json::from_str::<Quantity>(&json).unwrap(), quantity);
    }

    #[test]
    fn a_canonical_selector_selects_the_same(
        terms in prop::collection::vec(requirement(), 0..4),
        sets in prop::collection::vec(labels(), 8),
    ) {
        let selector = Selector::parse(&terms.join(",")).unwrap();
        let again = Selector::parse(&selector.to_string()).unwrap();
        prop_assert_eq!(again.to_string(), selector.to_string());
        for labels in &sets {
            prop_assert_eq!(again.matches(labels), selector.matches(labels), "{} on {:?}", selector, labels);
        }
    }

    #[test]
    fn a_canonical_field_selector_is_itself(
        terms in prop::collection::vec("[a.]{0,2}(=|==|!=)([b ]|\\\\[=,\\\\]){0,3}", 0..4),
    ) {
        let selector = FieldSelector::parse(&terms.join(",")).unwrap();
        let again = FieldSelector::parse(&selector.to_string()).unwrap();
        let sorted = |selector: &FieldSelector| {
            let mut requirements: Vec<String> = selector.requirements().iter().map(|own| format!("{own:?}")).collect();
            requirements.sort();
            requirements
        };
        prop_assert_eq!(sorted(&again), sorted(&selector));
    }

    #[test]
    fn no_text_makes_anything_panic(
        text in "\\PC{0,24}|[-+.0-9eEinumkKMGTP]{0,24}|[ab=!<>(), in\0]{0,24}|[a=!,\\\\]{0,12}"
    ) {
        if let Ok(quantity) = Quantity::parse(&text) {
            let _ = (quantity.to_string(), quantity.value(), quantity.milli_value(), quantity.approximate_f64());
        }
        let _ = Selector::parse(&text).map(|selector| selector.to_string()).map_err(|error| error.to_string());
        let _ = FieldSelector::parse(&text).map(|selector| selector.to_string()).map_err(|error| error.to_string());
        let _ = IntOrString::from(&*text).scaled(7, true).map_err(|error| error.to_string());
    }
}
