//! A SOCKS5 proxy whose name nobody resolves.

use std::time::Duration;

use cmap_sim::cmap_core::connection::{Fault, Phase};
use cmap_sim::cmap_core::options::ClientOptions;
use cmap_sim::cmap_core::pool::CheckOutErrorKind;
use cmap_sim::{CheckOutError, Pool, Sim};

#[test]
fn a_proxy_whose_name_is_not_resolved_in_time_is_said_so_socks_4() {
    let sim = Sim::new(1);
    let proxy = sim.server("proxy.example");
    proxy.resolve_to(Ok(Vec::new()), Some(Duration::from_secs(60)));

    sim.run(async {
        let uri = "mongodb://db.example/?proxyHost=proxy.example&connectTimeoutMS=2000";
        let (options, _) = ClientOptions::parse(uri).unwrap();
        let pool = Pool::with_options(options).await.unwrap();
        pool.ready();
        let before = sim.elapsed();

        let Err(CheckOutError::Pool(error)) = pool.check_out().await else { panic!("it got a connection") };

        assert_eq!(sim.elapsed() - before, Duration::from_secs(2));
        let CheckOutErrorKind::Establish(cause) = &error.kind else { panic!("{error}") };
        assert_eq!((cause.phase, cause.fault), (Phase::Proxy, Fault::Timeout), "{cause}");
        let expected = "proxy.example:1080 cannot be reached: its name was not resolved within connectTimeoutMS";
        assert!(cause.to_string().ends_with(expected), "{cause}");
    });
}
