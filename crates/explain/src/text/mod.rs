//! Answers as text for people: the verdict first, then what it rests on.

mod explanation;
mod list;
mod node;
mod style;
mod table;
mod words;

pub use explanation::explanation;
pub use list::list;
pub use node::node;
pub use style::Style;
