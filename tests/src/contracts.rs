//! The schemas in `schemas/`, and what they say of a value.
//!
//! Formats are asserted and JSON inside strings is read, so that a verdict is as strict as a schema can be.

use std::collections::BTreeMap;
use std::path::Path;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

/// What a schema's file is called, after its name.
const SUFFIX: &str = ".schema.json";

/// All schemas.
pub struct Contracts {
    files: BTreeMap<String, Value>,
    compiler: Compiler,
    compiled: Schemas,
}

impl Contracts {
    /// Reads `schemas/`.
    ///
    /// # Panics
    /// Where a file there is no schema, or bears another id than its name.
    pub fn load() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas");
        let mut contracts =
            Self { files: BTreeMap::new(), compiler: Compiler::new(), compiled: Schemas::new() };
        contracts.compiler.enable_format_assertions();
        contracts.compiler.enable_content_assertions();
        for entry in std::fs::read_dir(&folder).expect("schemas/ can be read") {
            let path = entry.expect("its entries can be read").path();
            let file_name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
            let Some(name) = file_name.strip_suffix(SUFFIX) else { continue };
            let text = std::fs::read_to_string(&path).expect("a schema can be read");
            let schema: Value = serde_json::from_str(&text).expect("a schema is JSON");
            assert_eq!(schema["$id"], urn(name), "{file_name}");
            contracts.compiler.add_resource(&urn(name), schema.clone()).expect("a schema is one");
            contracts.files.insert(name.to_owned(), schema);
        }
        contracts
    }

    /// The names of all schemas.
    pub fn names(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }

    /// The schema of this name, as it stands in its file.
    ///
    /// # Panics
    /// Where there is none.
    pub fn file(&self, name: &str) -> &Value {
        self.files.get(name).unwrap_or_else(|| panic!("there is no schema {name}"))
    }

    /// Whether the value is as the schema says. A part of a schema is named by its place: `common#/$defs/id`.
    ///
    /// # Errors
    /// What is wrong, where it is not.
    pub fn check(&mut self, place: &str, value: &Value) -> Result<(), String> {
        let schema = self.schema(place);
        self.compiled.validate(value, schema).map_err(|error| format!("{error:#}\nin {value}"))
    }

    /// The same of a text, which must be JSON to begin with.
    pub fn takes(&mut self, place: &str, text: &str) -> bool {
        serde_json::from_str(text).is_ok_and(|value| self.check(place, &value).is_ok())
    }

    fn schema(&mut self, place: &str) -> SchemaIndex {
        let (name, part) = place.split_once('#').unwrap_or((place, ""));
        let location = format!("{}#{part}", urn(name));
        self.compiler
            .compile(&location, &mut self.compiled)
            .unwrap_or_else(|error| panic!("{location} is no schema: {error:#}"))
    }
}

fn urn(name: &str) -> String {
    format!("urn:recoup:schema:{name}:1")
}
