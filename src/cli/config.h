/* The configuration file of the command line: hosts and groups by name, and what is taken where neither an option nor
 * the environment says it. */
#ifndef GB_CLI_CONFIG_CONFIG_H
#define GB_CLI_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/cli.h"

#define GB_CLI_CONFIG_FILE "gpubuf/config" /* below $XDG_CONFIG_HOME or ~/.config */

/* Where a setting may stand, and what it is. */
enum {
    GB_CLI_CONFIG_TOP = 1,    /* before the first section: of all hosts */
    GB_CLI_CONFIG_HOST = 2,   /* in a [host NAME] */
    GB_CLI_CONFIG_GROUP = 4,  /* in a [group NAME] */
    GB_CLI_CONFIG_ACCESS = 8, /* goes to no address that stands outside the file */
    GB_CLI_CONFIG_PATH = 16,  /* of a file: ~/ is the home folder, and others are below the configuration's folder */
    GB_CLI_CONFIG_SECRET = 32 /* is taken only of a file that its owner alone can read, and never shown */
};

enum gb_cli_config_id {
    GB_CLI_CONFIG_URL,
    GB_CLI_CONFIG_TOKEN_FILE,
    GB_CLI_CONFIG_TOKEN,
    GB_CLI_CONFIG_CACERT,
    GB_CLI_CONFIG_CERT,
    GB_CLI_CONFIG_KEY,
    GB_CLI_CONFIG_PLAIN_TOKEN,
    GB_CLI_CONFIG_SESSION,
    GB_CLI_CONFIG_TIMEOUT,
    GB_CLI_CONFIG_JSON,
    GB_CLI_CONFIG_QUIET,
    GB_CLI_CONFIG_PARALLEL,
    GB_CLI_CONFIG_DEFAULT_HOST,
    GB_CLI_CONFIG_HOSTS,
    GB_CLI_CONFIG_IDS
};

struct gb_cli_config_spec {
    const char *name;
    const char *environment; /* variable that wins over the file; NULL: none */
    int option;              /* gb_cli_option_id that wins over both, and takes the value; -1: none */
    unsigned what;           /* of the above */
};

extern const struct gb_cli_config_spec gb_cli_config_specs[GB_CLI_CONFIG_IDS];

struct gb_cli_section {
    char *name;    /* "": the top */
    unsigned kind; /* GB_CLI_CONFIG_TOP, HOST or GROUP */
    unsigned line;
    char *values[GB_CLI_CONFIG_IDS]; /* NULL: not said */
    unsigned lines[GB_CLI_CONFIG_IDS];
};

struct gb_cli_config {
    char *path;                      /* NULL: there is no file, or none is wanted */
    struct gb_cli_section *sections; /* the first is the top */
    size_t count;
};

/* Reads the file that --config, GPUBUF_CONFIG or the user's folder names; one of the user's folder may be missing. The
 * exit status: what does not fit is said with the file and the line. gb_cli_config_done() frees it in either case. */
int gb_cli_config_read(struct gb_cli *cli, struct gb_cli_config *ret);
void gb_cli_config_done(struct gb_cli_config *config);

/* A host or a group by its name. NULL: it is not in the file. Borrowed. */
const struct gb_cli_section *gb_cli_config_find(const struct gb_cli_config *config, unsigned kind, const char *name);
/* The same; says on standard error which there are near to it. NULL then. */
const struct gb_cli_section *gb_cli_config_named(struct gb_cli *cli, unsigned kind, const char *option,
                                                 const char *name);

enum gb_cli_config_from { GB_CLI_FROM_NOWHERE, GB_CLI_FROM_FILE, GB_CLI_FROM_ENVIRONMENT, GB_CLI_FROM_OPTION };

struct gb_cli_config_value {
    enum gb_cli_config_from from;
    const char *text; /* of the file or the environment; borrowed */
    unsigned line;    /* of the file */
};

/* Which host's settings count: that of --host or GPUBUF_HOST, else of the file's line host, if no address is said
 * elsewhere. */
struct gb_cli_config_scope {
    const struct gb_cli_section *host; /* NULL: none */
    bool named;     /* by an option or GPUBUF_HOST: what the host's section says wins over the environment */
    bool elsewhere; /* the address does not come of the file */
};
/* The exit status: there may be no such host. */
int gb_cli_config_scope(struct gb_cli *cli, struct gb_cli_config_scope *ret);
struct gb_cli_config_value gb_cli_config_value(const struct gb_cli *cli, const struct gb_cli_config_scope *scope,
                                               enum gb_cli_config_id id);

/* Puts what the file says, and nothing else does, into cli->options. */
void gb_cli_config_apply(struct gb_cli *cli, const struct gb_cli_config_scope *scope);

#endif
