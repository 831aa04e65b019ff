//! Which commands a user may run on which collections.

use super::pattern::Pattern;
use crate::protocol::Target;

/// Commands that concern the server and everybody who uses it, and stages of pipelines that show what others do; in small letters, since
/// some have an older name that differs in that. A user may run one where a rule names it in full: a star is not enough.
#[rustfmt::skip]
const OPERATOR_COMMANDS: &[&str] = &[
    "$currentop", "$listlocalsessions", "$listsessions", "abortreshardcollection", "addshard", "addshardtozone",
    "analyzeshardkey", "appendoplognote", "applyops", "balancerstart", "balancerstop", "cleanuporphaned",
    "clearjumboflag", "clearlog", "commitreshardcollection", "compact", "configurecollectionbalancing",
    "configurefailpoint", "configurequeryanalyzer", "createrole", "createuser", "currentop",
    "dropallrolesfromdatabase", "dropallusersfromdatabase", "dropconnections", "droprole", "dropuser",
    "enablesharding", "eval", "flushrouterconfig", "fsync", "fsyncunlock", "getauditconfig", "getcmdlineopts",
    "getlog", "getparameter", "grantprivilegestorole", "grantrolestorole", "grantrolestouser",
    "invalidateusercache", "killallsessions", "killallsessionsbypattern", "killop", "logapplicationmessage",
    "logrotate", "mapreduce", "mergechunks", "movechunk", "movecollection", "moveprimary", "moverange", "profile",
    "refinecollectionshardkey", "removeshard", "removeshardfromzone", "reshardcollection",
    "revokeprivilegesfromrole", "revokerolesfromrole", "revokerolesfromuser", "rolesinfo", "rotatecertificates",
    "setallowmigrations", "setauditconfig", "setclusterparameter", "setdefaultrwconcern",
    "setfeaturecompatibilityversion", "setparameter", "setprofilingfilterglobally", "setshardversion",
    "shardcollection", "shutdown", "sleep", "split", "splitvector", "testdeployment", "top",
    "transitionfromdedicatedconfigserver", "transitiontodedicatedconfigserver", "unshardcollection", "updaterole",
    "updateuser", "updatezonekeyrange", "usersinfo", "waitforfailpoint",
];

/// How the names of commands begin that are operators' as well: what servers say to each other, and what governs replica sets.
const OPERATOR_PREFIXES: [&str; 2] = ["_", "replset"];

/// Commands on a whole database by which the collections in it are read or dropped.
const OF_ALL_COLLECTIONS: [&str; 2] = ["aggregate", "dropDatabase"];

/// What a user may do. By default every command on every collection, except operators' commands.
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

    fn allow(&self, target: &Target) -> bool {
        let is_operators = is_operators(&target.action);
        let suits = |rule: &Rule| {
            rule.concerns(target) && (!is_operators || rule.commands.iter().any(|it| it.names(&target.action)))
        };
        let is_allowed = match &self.allow {
            Some(rules) => rules.iter().any(suits),
            None => !is_operators,
        };
        is_allowed && !self.deny.iter().any(|rule| rule.concerns(target) || rule.concerns_a_part_of(target))
    }
}

fn is_operators(action: &str) -> bool {
    let action = action.to_ascii_lowercase();
    OPERATOR_PREFIXES.iter().any(|prefix| action.starts_with(prefix))
        || OPERATOR_COMMANDS.binary_search(&action.as_str()).is_ok()
}

impl Rule {
    fn concerns(&self, target: &Target) -> bool {
        self.concerns_database(target) && any(&self.collections, &target.collection)
    }

    /// Whether it is about a collection of the database that a command concerns as a whole.
    fn concerns_a_part_of(&self, target: &Target) -> bool {
        target.collection.is_empty()
            && OF_ALL_COLLECTIONS.contains(&target.action.as_str())
            && self.concerns_database(target)
    }

    fn concerns_database(&self, target: &Target) -> bool {
        any(&self.databases, &target.database) && any(&self.commands, &target.action)
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
        for operators in [
            "shutdown",
            "killOp",
            "replSetStepDown",
            "configureFailPoint",
            "mapreduce",
            "addshard",
            "_killOperations",
            "$currentOp",
        ] {
            assert!(rules.check(&[target(operators, "admin.")]).is_err(), "{operators}");
        }
    }

    #[test]
    fn all_targets_must_be_allowed_and_none_denied_x_133() {
        let rules = Rules {
            allow: Some(vec![rule(&["shop*"], &["*"], &["find", "aggregate"])]),
            deny: vec![rule(&["*"], &["secret"], &["*"])],
        };

        assert_eq!(rules.check(&[target("find", "shop.c"), target("aggregate", "shop2.d")]), Ok(()));
        for forbidden in [target("find", "other.c"), target("insert", "shop.c"), target("$out", "shop.o")] {
            let both = [target("find", "shop.c"), forbidden.clone()];
            assert_eq!(rules.check(&both), Err(&forbidden));
        }
        assert!(rules.check(&[target("find", "shop.secret")]).is_err());
    }

    #[test]
    fn what_concerns_all_collections_concerns_the_one_that_is_denied_x_133() {
        let rules = Rules { allow: None, deny: vec![rule(&["shop"], &["secret"], &["*"])] };

        assert!(rules.check(&[target("aggregate", "shop.")]).is_err(), "a change stream of all collections");
        assert!(rules.check(&[target("dropDatabase", "shop.")]).is_err());
        assert_eq!(rules.check(&[target("listCollections", "shop."), target("aggregate", "other.")]), Ok(()));
    }

    #[test]
    fn the_operators_commands_are_in_order() {
        assert!(OPERATOR_COMMANDS.is_sorted());
        assert!(OPERATOR_COMMANDS.iter().all(|name| *name == name.to_ascii_lowercase()));
    }

    #[test]
    fn a_star_is_not_enough_for_an_operators_command() {
        let of = |command: &str| Rules { allow: Some(vec![rule(&["*"], &["*"], &[command])]), deny: Vec::new() };

        assert!(of("*").check(&[target("killOp", "admin.")]).is_err());
        assert_eq!(of("killOp").check(&[target("killOp", "admin.")]), Ok(()));
    }
}
