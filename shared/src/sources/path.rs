//! Where something stands in an event: `detail.tags.recoup_job_id`, `detail.container.environment[recoup_job_id]`.
//!
//! The syntax is the dotted path of EventBridge's own input paths, without the `$.`, and one pair of brackets more:
//!
//! - `a.b` is the field `b` of the object `a`. Where `a` is a list of objects, the first of them that has `b` answers;
//!   where `a` is a text that holds a JSON object, as the `input` of a Step Functions execution does, it is read.
//! - `a[NAME]` is the value of the pair called NAME in the list `a`, as services write environment variables
//!   (`[{"name": …, "value": …}]`) and tags (`[{"Key": …, "Value": …}]`). Where `a` is an object, it is its field NAME,
//!   so that names with dots can be written too.
//!
//! Looking builds nothing that is not on the path, and each step of the recursion consumes a step of the path: however
//! deep an event nests, the stack holds [`MAX_STEPS`] at most.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Steps that a path may have; the longest of the defaults has five.
pub(super) const MAX_STEPS: usize = 12;

/// A place in an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    text: String,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// `.name`
    Field(String),
    /// `[name]`
    Pair(String),
}

impl Step {
    fn name(&self) -> &str {
        match self {
            Self::Field(name) | Self::Pair(name) => name,
        }
    }
}

/// A field on a path that stands there twice: which of the two is meant is not ours to guess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Twice(pub(super) String);

impl Path {
    /// Reads a path.
    ///
    /// # Errors
    /// What is wrong with it, to be said after its text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let mut steps = Vec::new();
        let mut rest = text;
        loop {
            let (name, after) = rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len()));
            steps.push(Step::Field(name_of(name)?));
            rest = after;
            if let Some(brackets) = rest.strip_prefix('[') {
                let (name, after) = brackets.split_once(']').ok_or("has a [ without its ]")?;
                steps.push(Step::Pair(name_of(name)?));
                rest = after;
            }
            match rest.strip_prefix('.') {
                Some(next) => rest = next,
                None if rest.is_empty() => break,
                None => return Err("goes on after a ] without a dot"),
            }
        }
        if steps.len() > MAX_STEPS {
            return Err("has more than 12 steps");
        }
        Ok(Self { text: text.to_owned(), steps })
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its first name.
    pub(super) fn first(&self) -> &str {
        self.steps.first().map_or("", Step::name)
    }

    /// Its last name.
    pub(super) fn last(&self) -> &str {
        self.steps.last().map_or("", Step::name)
    }

    /// What stands there in `event`, as JSON; a null is nothing.
    pub(super) fn look(&self, event: &str) -> Result<Option<String>, Twice> {
        look(event, &self.steps)
    }
}

fn name_of(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || text.contains(|c: char| c.is_control() || matches!(c, '[' | ']')) {
        return Err("is not made of names with dots in between, such as detail.tags.my_id");
    }
    Ok(text.to_owned())
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn look(value: &str, steps: &[Step]) -> Result<Option<String>, Twice> {
    let value = value.trim_ascii();
    let Some((step, rest)) = steps.split_first() else {
        return Ok((value != "null").then(|| value.to_owned()));
    };
    match value.as_bytes().first() {
        Some(b'{') => look_in(value, step.name(), rest),
        Some(b'[') => match step {
            Step::Field(name) => first_of(&objects(value), |object| look_in(object, name, rest)),
            Step::Pair(name) => first_of(&objects(value), |object| pair(object, name, rest)),
        },
        // An object that a service wrote into a text. What is no JSON holds no field of ours.
        Some(b'"') => match serde_json::from_str::<String>(value) {
            Ok(text) if serde_json::from_str::<IgnoredAny>(&text).is_ok() => {
                let text = text.trim_ascii();
                if text.starts_with('{') { look_in(text, step.name(), rest) } else { Ok(None) }
            }
            Ok(_) | Err(_) => Ok(None),
        },
        Some(_) | None => Ok(None),
    }
}

fn look_in(object: &str, name: &str, rest: &[Step]) -> Result<Option<String>, Twice> {
    match field(object, name)? {
        Some(value) => look(value.get(), rest),
        None => Ok(None),
    }
}

/// The value of a pair, if this is the one of that name.
fn pair(object: &str, name: &str, rest: &[Step]) -> Result<Option<String>, Twice> {
    for (key, value) in [("name", "value"), ("Name", "Value"), ("key", "value"), ("Key", "Value")] {
        let called = field(object, key)?.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
        if called.as_deref() == Some(name) {
            return look_in(object, value, rest);
        }
    }
    Ok(None)
}

fn first_of<'a>(
    objects: &[&'a RawValue],
    find: impl Fn(&'a str) -> Result<Option<String>, Twice>,
) -> Result<Option<String>, Twice> {
    for object in objects {
        if let Some(found) = find(object.get())? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The objects in a list. Lists in lists are not gone into: nothing that ends here nests so.
fn objects(list: &str) -> Vec<&RawValue> {
    let all: Vec<&RawValue> = serde_json::from_str(list).unwrap_or_default();
    all.into_iter().filter(|element| element.get().starts_with('{')).collect()
}

/// The field `name` of an object, and nothing else of it.
fn field<'a>(object: &'a str, name: &str) -> Result<Option<&'a RawValue>, Twice> {
    let mut json = serde_json::Deserializer::from_str(object);
    json.deserialize_map(OneField(name)).map_err(|_| Twice(name.to_owned()))
}

/// Takes one field out of an object. Its only error is that the field stands there twice: what is looked into has
/// been read as JSON before.
struct OneField<'n>(&'n str);

impl<'de> Visitor<'de> for OneField<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(IsNamed(self.0))? {
            if !is_it {
                map.next_value::<IgnoredAny>()?;
            } else if found.replace(map.next_value()?).is_some() {
                return Err(serde::de::Error::custom("twice"));
            }
        }
        Ok(found)
    }
}

/// Compares a key with a name, without keeping it.
struct IsNamed<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for IsNamed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IsNamed<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, event: &str) -> Option<String> {
        Path::parse(path).unwrap().look(event).unwrap()
    }

    #[test]
    fn a_path_leads_through_objects_lists_pairs_and_texts() {
        let event = r#"{"detail": {"tags": {"my.id": "t", "id": "i"}, "n": 7, "none": null,
            "environment": [{"name": "A", "value": "1"}, {"name": "ID", "value": "e"}],
            "Tags": [{"Key": "ID", "Value": "T"}], "input": "{\"job\":{\"id\":\"in\"}}",
            "containers": [17, {"name": "x"}, {"reason": "why"}, {"reason": "other"}],
            "overrides": [{"name": "a"}, {"environment": [{"name": "ID", "value": "o"}]}]}}"#;
        for (path, value) in [
            ("detail.tags.id", r#""i""#),
            ("detail.tags[my.id]", r#""t""#),
            ("detail.n", "7"),
            ("detail.environment[ID]", r#""e""#),
            ("detail.Tags[ID]", r#""T""#),
            ("detail.input.job.id", r#""in""#),
            ("detail.containers.reason", r#""why""#),
            ("detail.overrides.environment[ID]", r#""o""#),
        ] {
            assert_eq!(found(path, event).as_deref(), Some(value), "{path}");
        }
        for nothing in [
            "detail.none",
            "detail.n.m",
            "detail.tags.x",
            "detail.environment[X]",
            "detail.containers.x",
            "x",
        ] {
            assert_eq!(found(nothing, event), None, "{nothing}");
        }
    }

    #[test]
    fn a_field_on_the_path_that_stands_there_twice_is_an_error() {
        let twice = |path: &str, event: &str| Path::parse(path).unwrap().look(event);
        assert_eq!(twice("a.b", r#"{"a":{"b":1,"b":2}}"#), Err(Twice("b".to_owned())));
        assert_eq!(twice("a.b", r#"{"a":{"b":1,"\u0062":2}}"#), Err(Twice("b".to_owned())));
        assert_eq!(twice("a.b", r#"{"a":"{\"b\":1,\"b\":2}"}"#), Err(Twice("b".to_owned())));
        assert_eq!(twice("a.b", r#"{"a":{"b":1,"c":2,"c":3}}"#), Ok(Some("1".to_owned())));
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = format!(r#"{{"a":{}1{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
        assert_eq!(found("a.b.c", &deep), None);
        let deep = format!(r#"{{"a":{}1{}}}"#, r#"{"a":"#.repeat(200_000), "}".repeat(200_000));
        assert_eq!(found("a.b", &deep), None);
        assert!(found("a.a.a", &deep).is_some());
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for bad in
            ["", ".", "a..b", "a.", "a[", "a]", "a[]", "[b]", "a[b]c", "a\nb", "a.b.c.d.e.f.g.h.i.j.k.l.m"]
        {
            assert!(Path::parse(bad).is_err(), "{bad:?}");
        }
    }
}
