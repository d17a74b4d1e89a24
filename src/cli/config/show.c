/* config: the settings that are in force. */
#include <stdlib.h>
#include <string.h>

#include "cli/config/config.h"

#define HIDDEN "(not shown)"
#define BUILT_IN "built in"

/* What holds where nothing says it, of the settings that are shown in any case. */
static const char *const built_in[GB_CLI_CONFIG_IDS] = {
    [GB_CLI_CONFIG_URL] = "the UNIX socket of this machine's daemon, else http://127.0.0.1:7070",
    [GB_CLI_CONFIG_SESSION] = "default",
};

/* The value of an option, malloc'd. */
static char *option_text(const struct gb_cli_options *options, int id) {
    const struct gb_cli_option_spec *spec = &gb_cli_options_all[id];
    const void *value = (const char *)options + spec->at;
    char *ret = NULL;

    if (spec->type == GB_CLI_TEXT || spec->type == GB_CLI_FILE)
        return strdup(*(const char *const *)value);
    if (spec->type == GB_CLI_FLAG)
        return strdup("true");
    if (spec->type == GB_CLI_SECONDS)
        return asprintf(&ret, "%g", *(const double *)value) >= 0 ? ret : NULL;
    return asprintf(&ret, "%llu", (unsigned long long)*(const uint64_t *)value) >= 0 ? ret : NULL;
}

/* "FILE:LINE", "GPUBUF_URL", "--url" or "built in". */
static void from_text(const struct gb_cli *cli, enum gb_cli_config_id id, const struct gb_cli_config_value *value,
                      char *ret, size_t size) {
    const struct gb_cli_config_spec *spec = &gb_cli_config_specs[id];

    if (value->from == GB_CLI_FROM_FILE)
        snprintf(ret, size, "%s:%u", cli->config->path, value->line);
    else if (value->from == GB_CLI_FROM_ENVIRONMENT)
        snprintf(ret, size, "%s", spec->environment);
    else if (value->from == GB_CLI_FROM_OPTION)
        snprintf(ret, size, "--%s", spec->name);
    else
        snprintf(ret, size, BUILT_IN);
}

/* A line of the table. A token of the environment is none of token-file. */
static void add_setting(const struct gb_cli *cli, json_t *items, const struct gb_cli_config_scope *scope,
                        enum gb_cli_config_id id) {
    const struct gb_cli_config_spec *spec = &gb_cli_config_specs[id];
    struct gb_cli_config_value value = gb_cli_config_value(cli, scope, id);
    char *text = NULL;
    char from[GB_CLI_PATH];

    if (value.from == GB_CLI_FROM_NOWHERE)
        value.text = built_in[id];
    if ((value.from == GB_CLI_FROM_NOWHERE && value.text == NULL) ||
        (id == GB_CLI_CONFIG_TOKEN && value.from == GB_CLI_FROM_OPTION) ||
        (id == GB_CLI_CONFIG_TOKEN_FILE && value.from == GB_CLI_FROM_ENVIRONMENT))
        return;
    from_text(cli, id, &value, from, sizeof from);
    if (spec->what & GB_CLI_CONFIG_SECRET)
        text = strdup(HIDDEN);
    else
        text = value.from == GB_CLI_FROM_OPTION ? option_text(&cli->options, spec->option) : strdup(value.text);
    json_array_append_new(items, json_pack("{s:s, s:s*, s:s}", "setting", spec->name, "value", text, "from", from));
    free(text);
}

static json_t *settings_of(const struct gb_cli *cli, const struct gb_cli_config_scope *scope) {
    json_t *items = json_array();
    enum gb_cli_config_id id;

    for (id = 0; id < GB_CLI_CONFIG_DEFAULT_HOST; id++)
        add_setting(cli, items, scope, id);
    return items;
}

/* "a, b" as an array. */
static json_t *names_of(const char *list) {
    json_t *names = json_array();

    while (*list != '\0') {
        size_t n = strcspn(list, ", \t");

        if (n > 0)
            json_array_append_new(names, json_stringn(list, n));
        list += n + (list[n] != '\0');
    }
    return names;
}

static void add_section(const struct gb_cli_section *section, json_t *hosts, json_t *groups) {
    const char *url = section->values[GB_CLI_CONFIG_URL];

    if (section->kind == GB_CLI_CONFIG_HOST)
        json_array_append_new(hosts,
                              json_pack("{s:s, s:s}", "host", section->name, "url", url != NULL ? url : section->name));
    else if (section->kind == GB_CLI_CONFIG_GROUP)
        json_array_append_new(groups, json_pack("{s:s, s:o}", "group", section->name, "hosts",
                                                names_of(section->values[GB_CLI_CONFIG_HOSTS])));
}

static void put(struct gb_cli *cli, json_t *all) {
    static const struct gb_cli_column settings[] = {{"SETTING", "setting", GB_CLI_FORM_TEXT},
                                                    {"VALUE", "value", GB_CLI_FORM_TEXT},
                                                    {"FROM", "from", GB_CLI_FORM_TEXT}};
    static const struct gb_cli_column hosts[] = {{"HOST", "host", GB_CLI_FORM_TEXT}, {"URL", "url", GB_CLI_FORM_TEXT}};
    json_t *group;
    json_t *name;
    size_t i;
    size_t k;

    printf("file: ");
    gb_cli_put(stdout, cli->config->path != NULL ? cli->config->path : "none");
    printf("\n\n");
    gb_cli_table(stdout, settings, sizeof settings / sizeof settings[0], json_object_get(all, "settings"));
    if (json_array_size(json_object_get(all, "hosts")) > 0) {
        printf("\n");
        gb_cli_table(stdout, hosts, sizeof hosts / sizeof hosts[0], json_object_get(all, "hosts"));
    }
    json_array_foreach(json_object_get(all, "groups"), i, group) {
        printf("%sgroup ", i == 0 ? "\n" : "");
        gb_cli_put(stdout, gb_cli_text(group, "group"));
        printf(":");
        json_array_foreach(json_object_get(group, "hosts"), k, name) {
            printf(" ");
            gb_cli_put(stdout, json_string_value(name));
        }
        printf("\n");
    }
}

/* Needs no daemon: cli->client is NULL. */
int gb_cli_run_config(struct gb_cli *cli, int argc, char **argv) {
    struct gb_cli_config_scope scope;
    int rc = gb_cli_config_scope(cli, &scope);
    json_t *hosts;
    json_t *groups;
    json_t *all;
    size_t i;

    (void)argc;
    (void)argv;
    if (rc != GB_CLI_DONE)
        return rc;
    hosts = json_array();
    groups = json_array();
    for (i = 1; i < cli->config->count; i++)
        add_section(&cli->config->sections[i], hosts, groups);
    all = json_pack("{s:s?, s:s?, s:o, s:o, s:o}", "file", cli->config->path, "host",
                    scope.host != NULL ? scope.host->name : NULL, "settings", settings_of(cli, &scope), "hosts", hosts,
                    "groups", groups);
    if (cli->options.json)
        gb_cli_json(stdout, all);
    else
        put(cli, all);
    json_decref(all);
    return gb_cli_flush(cli, GB_CLI_DONE);
}
