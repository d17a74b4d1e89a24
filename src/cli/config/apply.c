/* Which of option, environment and file a setting comes from. */
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "cli/config/config.h"

static const char *environment(const char *name) {
    const char *value = name != NULL ? getenv(name) : NULL;

    return value != NULL && value[0] != '\0' ? value : NULL;
}

int gb_cli_config_scope(struct gb_cli *cli, struct gb_cli_config_scope *ret) {
    const struct gb_cli_options *o = &cli->options;
    const char *variable = environment("GPUBUF_HOST");
    const char *usual = cli->config->sections[0].values[GB_CLI_CONFIG_DEFAULT_HOST];
    bool given = o->url != NULL || o->socket != NULL;
    const char *name = o->host != NULL ? o->host : given ? NULL : variable;

    *ret = (struct gb_cli_config_scope){.elsewhere = given};
    if (o->host != NULL && o->url != NULL)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--host and --url both say which daemon: give one of them");
    if (name != NULL) {
        ret->named = true;
        ret->elsewhere = false;
        ret->host = gb_cli_config_named(cli, GB_CLI_CONFIG_HOST, o->host != NULL ? "--host" : "GPUBUF_HOST", name);
        return ret->host != NULL ? GB_CLI_DONE : GB_CLI_USAGE;
    }
    ret->elsewhere = given || environment("GPUBUF_URL") != NULL || environment("GPUBUF_SOCKET") != NULL ||
                     environment("GPUBUF_FLEET") != NULL;
    if (!ret->elsewhere && usual != NULL)
        ret->host = gb_cli_config_find(cli->config, GB_CLI_CONFIG_HOST, usual);
    return GB_CLI_DONE;
}

/* A token and the file of one are the same setting. */
static bool says(const struct gb_cli_section *section, enum gb_cli_config_id id) {
    if (id == GB_CLI_CONFIG_TOKEN || id == GB_CLI_CONFIG_TOKEN_FILE)
        return section->values[GB_CLI_CONFIG_TOKEN] != NULL || section->values[GB_CLI_CONFIG_TOKEN_FILE] != NULL;
    return section->values[id] != NULL;
}

static bool option_given(const struct gb_cli_options *options, enum gb_cli_config_id id) {
    int option = gb_cli_config_specs[id].option;

    return options->given[id == GB_CLI_CONFIG_TOKEN ? (int)GB_CLI_ID_token_file : option];
}

struct gb_cli_config_value gb_cli_config_value(const struct gb_cli *cli, const struct gb_cli_config_scope *scope,
                                               enum gb_cli_config_id id) {
    const struct gb_cli_config_spec *spec = &gb_cli_config_specs[id];
    const struct gb_cli_section *top = &cli->config->sections[0];
    bool own = scope->host != NULL && says(scope->host, id);
    const struct gb_cli_section *section = own ? scope->host : top;
    const char *variable = environment(spec->environment);

    if (option_given(&cli->options, id))
        return (struct gb_cli_config_value){.from = GB_CLI_FROM_OPTION};
    if (id == GB_CLI_CONFIG_URL && scope->host != NULL && !own) /* the name is the address */
        return (struct gb_cli_config_value){GB_CLI_FROM_FILE, scope->host->name, scope->host->line};
    if (variable != NULL && !(own && scope->named))
        return (struct gb_cli_config_value){.from = GB_CLI_FROM_ENVIRONMENT, .text = variable};
    if (section->values[id] == NULL || (scope->elsewhere && (spec->what & GB_CLI_CONFIG_ACCESS)))
        return (struct gb_cli_config_value){.from = GB_CLI_FROM_NOWHERE};
    return (struct gb_cli_config_value){GB_CLI_FROM_FILE, section->values[id], section->lines[id]};
}

void gb_cli_config_apply(struct gb_cli *cli, const struct gb_cli_config_scope *scope) {
    enum gb_cli_config_id id;

    for (id = 0; id < GB_CLI_CONFIG_DEFAULT_HOST; id++) {
        struct gb_cli_config_value value = gb_cli_config_value(cli, scope, id);
        enum gb_cli_option_id option = (enum gb_cli_option_id)gb_cli_config_specs[id].option;
        bool on = true;

        if (value.from != GB_CLI_FROM_FILE)
            continue;
        if (id == GB_CLI_CONFIG_TOKEN) {
            cli->secret = value.text;
            continue;
        }
        if (id == GB_CLI_CONFIG_SESSION) { /* --session also picks what is shown, as the environment does not */
            cli->usual = value.text;
            continue;
        }
        if (gb_cli_options_all[option].type == GB_CLI_FLAG)
            gb_parse_bool(value.text, strlen(value.text), &on);
        if (on)
            gb_cli_option_set(&cli->options, option, value.text);
    }
}
