//! Which commands a user may run on which collections.

use super::ordinary::{is_database_of_the_server, is_ordinary, is_system_collection};
use super::pattern::Pattern;
use crate::protocol::Target;

/// What reaches every collection of a database. A rule that denies one of them denies these, too.
const REACHES_ALL: [&str; 2] = ["$changeStream", "dropDatabase"];

/// What a user may do. By default every command on every collection, except operators' commands and the server's own collections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// What is allowed; `None` is everything.
    pub allow: Option<Vec<Rule>>,
    /// What is forbidden all the same.
    pub deny: Vec<Rule>,
}

/// Some commands on some collections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Databases.
    pub databases: Vec<Pattern>,
    /// Collections. A command on a whole database is one on the collection with the empty name, which a star allows.
    pub collections: Vec<Pattern>,
    /// Commands. Pipelines that write are the commands `$out` and `$merge`.
    pub commands: Vec<Pattern>,
}

impl Rules {
    /// Whether the user may do all that a command does; the first thing that is forbidden otherwise.
    ///
    /// # Errors
    /// One of the targets is forbidden.
    pub fn check<'t>(&self, targets: &'t [Target]) -> Result<(), &'t Target> {
        match targets.iter().find(|target| !self.allow(target)) {
            Some(forbidden) => Err(forbidden),
            None => Ok(()),
        }
    }

    /// Whether a rule allows the target and names its command in full, as those of operators do.
    pub fn names(&self, target: &Target) -> bool {
        let names = |rule: &Rule| rule.concerns(target) && rule.commands.iter().any(|it| it.names(&target.action));
        self.allow(target) && self.allow.iter().flatten().any(names)
    }

    fn allow(&self, target: &Target) -> bool {
        let needs = Named::of(target);
        let is_allowed = match &self.allow {
            Some(rules) => rules.iter().any(|rule| rule.concerns(target) && needs.are_met_by(rule, target)),
            None => needs == Named::default(),
        };
        let reaches_all = target.collection.is_empty() && REACHES_ALL.contains(&target.action.as_str());
        let is_denied = |rule: &Rule| {
            // Servers know some commands in two cases, and a rule denies both.
            any(&rule.databases, &target.database)
                && (reaches_all || any(&rule.collections, &target.collection))
                && rule.commands.iter().any(|command| command.matches_in_any_case(&target.action))
        };
        is_allowed && !self.deny.iter().any(is_denied)
    }
}

impl Rule {
    fn concerns(&self, target: &Target) -> bool {
        any(&self.databases, &target.database)
            && any(&self.collections, &target.collection)
            && any(&self.commands, &target.action)
    }
}

/// What a rule has to name in full to allow a target, because it is operators'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Named {
    database: bool,
    collection: bool,
    command: bool,
}

impl Named {
    fn of(target: &Target) -> Self {
        Self {
            database: is_database_of_the_server(target),
            collection: is_system_collection(target),
            command: !is_ordinary(&target.action),
        }
    }

    fn are_met_by(self, rule: &Rule, target: &Target) -> bool {
        let names = |patterns: &[Pattern], name: &str| patterns.iter().any(|pattern| pattern.names(name));
        (!self.database || names(&rule.databases, &target.database))
            && (!self.collection || names(&rule.collections, &target.collection))
            && (!self.command || names(&rule.commands, &target.action))
    }
}

fn any(patterns: &[Pattern], name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(databases: &[&str], collections: &[&str], commands: &[&str]) -> Rule {
        let patterns = |texts: &[&str]| texts.iter().copied().map(Pattern::new).collect();
        Rule { databases: patterns(databases), collections: patterns(collections), commands: patterns(commands) }
    }

    fn target(action: &str, place: &str) -> Target {
        let (database, collection) = place.split_once('.').unwrap();
        Target { database: database.into(), collection: collection.into(), action: action.into() }
    }

    #[test]
    fn a_user_without_rules_may_do_all_but_what_concerns_everybody_x_133() {
        let rules = Rules::default();

        assert_eq!(rules.check(&[target("find", "d.c"), target("dropDatabase", "d.")]), Ok(()));
        for operators in
            ["shutdown", "replSetStepDown", "configureFailPoint", "$currentOp", "updateRole", "_getUserCacheGeneration"]
        {
            assert!(rules.check(&[target(operators, "admin.")]).is_err(), "{operators}");
        }
    }

    #[test]
    fn the_servers_own_collections_need_a_rule_that_names_them_in_full_x_133() {
        let of = |databases: &str, collections: &str| Rules {
            allow: Some(vec![rule(&[databases], &[collections], &["*"])]),
            deny: Vec::new(),
        };

        for place in ["shop.system.views", "admin.system.users", "local.oplog.rs", "config.shards", "config."] {
            let target = target("find", place);
            let (database, collection) = place.split_once('.').unwrap();
            assert!(Rules::default().check(std::slice::from_ref(&target)).is_err(), "{place}");
            assert!(of("*", "*").check(std::slice::from_ref(&target)).is_err(), "{place}");
            assert_eq!(of(database, collection).check(&[target]), Ok(()), "{place}");
        }
        assert!(of("*", "system.*").check(&[target("insert", "shop.system.js")]).is_err());
        assert_eq!(of("local", "*").check(&[target("find", "local.oplog.rs")]), Ok(()));
        assert_eq!(Rules::default().check(&[target("find", "shop.systems"), target("find", "locals.c")]), Ok(()));
    }

    #[test]
    fn a_command_that_the_hub_does_not_know_needs_a_rule_that_names_it_x_133() {
        let of = |command: &str| Rules { allow: Some(vec![rule(&["*"], &["*"], &[command])]), deny: Vec::new() };
        let unknown = target("filemd5", "shop.");

        assert!(Rules::default().check(std::slice::from_ref(&unknown)).is_err());
        assert!(of("*").check(std::slice::from_ref(&unknown)).is_err());
        assert_eq!(of("filemd5").check(&[unknown]), Ok(()));
    }

    #[test]
    fn a_rule_that_denies_a_command_denies_its_name_in_another_case_x_133() {
        let rules = Rules { allow: None, deny: vec![rule(&["*"], &["*"], &["findAnd*", "dataSize"])] };

        for action in ["dataSize", "datasize", "findandmodify"] {
            assert!(rules.check(&[target(action, "shop.c")]).is_err(), "{action}");
        }
        assert_eq!(rules.check(&[target("find", "shop.c")]), Ok(()));
    }

    #[test]
    fn all_targets_must_be_allowed_and_none_denied_x_133() {
        let rules = Rules {
            allow: Some(vec![rule(&["shop*"], &["*"], &["find", "aggregate"])]),
            deny: vec![rule(&["*"], &["secret"], &["*"])],
        };

        assert_eq!(rules.check(&[target("find", "shop.c"), target("aggregate", "shop2.")]), Ok(()));
        for forbidden in [target("find", "other.c"), target("insert", "shop.c"), target("$out", "shop.o")] {
            let both = [target("find", "shop.c"), forbidden.clone()];
            assert_eq!(rules.check(&both), Err(&forbidden));
        }
        assert!(rules.check(&[target("find", "shop.secret")]).is_err());
    }

    #[test]
    fn what_reaches_a_whole_database_is_denied_with_one_of_its_collections_x_133() {
        let rules = Rules { allow: None, deny: vec![rule(&["shop"], &["secret"], &["*"])] };

        for action in ["dropDatabase", "$changeStream"] {
            assert!(rules.check(&[target(action, "shop.")]).is_err(), "{action}");
            assert_eq!(rules.check(&[target(action, "other.")]), Ok(()), "{action}");
        }
        assert_eq!(rules.check(&[target("listCollections", "shop.")]), Ok(()));
    }

    #[test]
    fn a_star_is_not_enough_for_an_operators_command() {
        let of = |command: &str| Rules { allow: Some(vec![rule(&["*"], &["*"], &[command])]), deny: Vec::new() };

        assert!(of("*").check(&[target("shutdown", "admin.")]).is_err());
        assert_eq!(of("shutdown").check(&[target("shutdown", "admin.")]), Ok(()));
    }

    #[test]
    fn only_a_rule_that_names_a_command_makes_its_user_an_operator_x_138() {
        let of = |command: &str| Rules { allow: Some(vec![rule(&["*"], &["*"], &[command])]), deny: Vec::new() };
        let kill = target("killOp", "admin.");

        assert_eq!([of("*"), of("killOp"), Rules::default()].map(|rules| rules.names(&kill)), [false, true, false]);
        let denied = Rules { deny: vec![rule(&["*"], &["*"], &["kill*"])], ..of("killOp") };
        assert!(!denied.names(&kill));
    }
}
