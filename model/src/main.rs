use recoup_model::{Scenario, search::search};
fn main() {
    let want: Vec<String> = std::env::args().skip(1).collect();
    for s in Scenario::ALL { if !want.is_empty() && !want.contains(&s.name.to_string()) { continue; }
        let t = std::time::Instant::now();
        let r = search(s, None, 1);
        println!("{} states {} steps {} depth {} {:?} found {:#?}", s.name, r.states, r.steps, r.depth, t.elapsed(), r.found);
        println!("missing {:?}", r.reached.missing());
    }
}
