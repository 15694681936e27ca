//! The metrics that the functions write. It needs no store.

use recoup::metrics::{ALL, NAMESPACE, Unit};

use crate::output::{Grid, Output};
use crate::stop::Stop;

pub(crate) fn run(out: &mut Output) -> Result<(), Stop> {
    if out.is_json() {
        return ALL.iter().try_for_each(|metric| out.document(metric));
    }
    out.heading(&format!("Namespace {NAMESPACE}"))?;
    let mut table = Grid::new(&["metric", "unit", "dimensions", "what it counts"]);
    for metric in ALL {
        let unit = match metric.unit {
            Unit::Count => "",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
        };
        table.row([metric.name, unit, &metric.dimensions.join(", "), metric.meaning]);
    }
    out.table(&table)
}
