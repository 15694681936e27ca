use recoup_model::{Scenario, Mutation, search::search, mutation::Expected};
fn main() {
    let want: Vec<String> = std::env::args().skip(1).collect();
    if want.first().is_some_and(|w| w=="mut") {
        for m in Mutation::ALL { 
            let (s, exp) = match m.expected() { Expected::Fails(s) => (s, true), Expected::Covered{within,..} => (within,false) };
            let t = std::time::Instant::now();
            let r = search(s, Some(*m), 1);
            println!("{} {m:?} {} {:?} states {} {:?} steps {}", if r.found.is_some()==exp {"ok "} else {"BAD"}, s.name, r.found.as_ref().map(|f| f.0), r.states, t.elapsed(), r.found.map_or(0, |f| f.1.len()));
        }
        return;
    }
    for s in Scenario::ALL { if !want.is_empty() && !want.contains(&s.name.to_string()) { continue; }
        let t = std::time::Instant::now();
        let r = search(s, None, 1);
        println!("{} states {} steps {} depth {} {:?} found {:#?}", s.name, r.states, r.steps, r.depth, t.elapsed(), r.found);
        println!("missing {:?}", r.reached.missing());
    }
}
