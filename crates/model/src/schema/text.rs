//! The lines of the generated text.

/// Made by the generator; its header tells the form of its lines.
pub(super) static TEXT: &str = include_str!("generated/schema.txt");

/// One definition and its fields.
pub(super) struct DefinitionLines {
    pub(super) name: &'static str,
    pub(super) attributes: Attributes,
    pub(super) fields: Vec<FieldLine>,
}

/// One field, or a message that is inlined.
#[derive(Clone, Copy)]
pub(super) struct FieldLine {
    /// `~` for an inlined message.
    pub(super) name: &'static str,
    /// 0 for fields that protobuf does not carry.
    pub(super) number: u32,
    pub(super) flags: &'static str,
    pub(super) ty: &'static str,
    pub(super) attributes: Attributes,
    values: Option<&'static str>,
}

/// Words of the form `name=value`.
#[derive(Clone, Copy)]
pub(super) struct Attributes(&'static str);

impl Attributes {
    pub(super) fn get(&self, name: &str) -> Option<&'static str> {
        self.0.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// A word of its own.
    pub(super) fn has(&self, mark: &str) -> bool {
        self.0.split(' ').any(|word| word == mark)
    }

    /// The elements of a list, none when it is absent.
    pub(super) fn list(&self, name: &str) -> impl Iterator<Item = &'static str> + use<> {
        self.get(name).into_iter().flat_map(|list| list.split(','))
    }
}

impl FieldLine {
    /// The values an enumeration allows, none for any other field.
    pub(super) fn values(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.values.into_iter().flat_map(|values| values.split(','))
    }

    pub(super) fn is_inlined(&self) -> bool {
        self.name == "~"
    }
}

/// Reads the text, in the order of the definitions' names.
pub(super) fn definitions(text: &'static str) -> Vec<DefinitionLines> {
    let mut definitions: Vec<DefinitionLines> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match (line.strip_prefix("  "), definitions.last_mut()) {
            (Some(field), Some(definition)) => definition.fields.push(field_line(field)),
            _ => {
                let (name, attributes) = line.split_once(' ').unwrap_or((line, ""));
                definitions.push(DefinitionLines { name, attributes: Attributes(attributes), fields: Vec::new() });
            }
        }
    }
    definitions
}

fn field_line(line: &'static str) -> FieldLine {
    let (line, values) = match line.split_once(" enum=") {
        Some((line, values)) => (line, Some(values)),
        None => (line, None),
    };
    let mut words = line.splitn(5, ' ');
    let mut word = || words.next().expect("a field line of the generated text has four words");
    let (name, number, flags, ty) = (word(), word(), word(), word());
    let attributes = Attributes(words.next().unwrap_or(""));
    FieldLine { name, number: number.parse().expect("field numbers are numbers"), flags, ty, attributes, values }
}
