/* fleet init: the first record of a fleet in its directory, and the same again after the directory lost it. */
#include <stdlib.h>
#include <string.h>

#include "cli/fleet.h"

#include "base/encoding.h"

/* What the nodes know of their fleet. */
struct asked {
    const char *fleet;           /* its name */
    char uuid[GB_CLI_UUID_SIZE]; /* "": no node told it */
    char node[GPUBUF_NAME_SIZE]; /* that told it */
    unsigned count;              /* of addresses */
};

static bool is_uuid(const char *text) {
    size_t i;

    for (i = 0; text[i] != '\0'; i++) {
        bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;

        if (hyphen ? text[i] != '-' : gb_hex_digit(text[i]) < 0)
            return false;
    }
    return i == GB_CLI_UUID_SIZE - 1;
}

/* A node that does not help is named and passed over: the others know the same. */
static void pass_over(const char *url, const char *why) {
    fputs("gpubuf: ", stderr);
    gb_cli_put(stderr, url);
    fputs(": ", stderr);
    gb_cli_put(stderr, why);
    fputs("\n", stderr);
}

static int take_uuid(struct gb_cli *cli, struct asked *asked, json_t *told) {
    const char *fleet = gb_cli_text(told, "fleet");
    const char *node = gb_cli_text(told, "node");
    const char *uuid = gb_cli_text(told, "fleet_uuid");

    if (strcmp(fleet, asked->fleet) != 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                            "node \"%s\" is of the fleet \"%s\", not of \"%s\": --fleet-name says which it is", node,
                            fleet, asked->fleet);
    if (asked->uuid[0] != '\0' && strcmp(asked->uuid, uuid) != 0)
        return gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                            "node \"%s\" knows its fleet by the uuid %s, and %s%s%s says %s: name nodes of one fleet",
                            node, uuid, asked->node[0] != '\0' ? "node \"" : "--uuid", asked->node,
                            asked->node[0] != '\0' ? "\"" : "", asked->uuid);
    snprintf(asked->uuid, sizeof asked->uuid, "%.36s", uuid);
    snprintf(asked->node, sizeof asked->node, "%s", node);
    return 0;
}

static int ask_node(struct gb_cli *cli, const char *url, struct asked *asked) {
    const struct gpubuf_answer *answer;
    struct gpubuf_error err = {.code = GPUBUF_OK};
    gpubuf_client *client;
    json_t *told = NULL;
    int rc;

    asked->count++;
    if (gb_cli_fleet_open(cli, url, &client) < 0)
        return -1;
    rc = gpubuf_request(client, "GET", "/v1/fleet", NULL, NULL, 0, &err);
    answer = gpubuf_answer_of(client);
    if (rc == 0)
        told = json_loadb(answer->body, answer->bytes, 0, NULL);
    gpubuf_close(client);
    if (rc < 0)
        pass_over(url, err.detail[0] != '\0' ? err.detail : err.title);
    else if (gb_cli_text(told, "state")[0] == '\0')
        pass_over(url, "the answer is not what a gpubufd says");
    else if (strcmp(gb_cli_text(told, "state"), "none") == 0)
        pass_over(url, "it is in no fleet");
    else if (gb_cli_text(told, "fleet_uuid")[0] == '\0')
        pass_over(url, "it has joined no fleet yet, and does not know the uuid");
    else
        rc = take_uuid(cli, asked, told);
    json_decref(told);
    return rc < 0 && err.code == GPUBUF_OK ? -1 : 0;
}

/* Those of --url, else of GPUBUF_FLEET. */
static int ask_nodes(struct gb_cli *cli, struct asked *asked) {
    const char *list = cli->options.url != NULL ? cli->options.url : getenv("GPUBUF_FLEET");
    char *copy = strdup(list != NULL ? list : "");
    char *rest = copy;
    char *url;
    int rc = copy != NULL ? 0 : gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");

    while (rc == 0 && (url = strsep(&rest, ", ")) != NULL) {
        if (url[0] != '\0')
            rc = ask_node(cli, url, asked);
    }
    free(copy);
    return rc;
}

/* The uuid that the record is to have again. The exit status of what was said, or GB_CLI_DONE. */
static int find_uuid(struct gb_cli *cli, struct asked *asked) {
    const char *given = cli->options.uuid;

    if (given != NULL && !is_uuid(given))
        return gb_cli_refused(cli, GB_CLI_USAGE, "--uuid \"%.64s\" is no uuid: 8-4-4-4-12 hexadecimal digits", given);
    if (given != NULL)
        snprintf(asked->uuid, sizeof asked->uuid, "%s", given);
    if (ask_nodes(cli, asked) < 0)
        return gb_cli_failed(cli);
    if (asked->uuid[0] != '\0')
        return GB_CLI_DONE;
    if (asked->count == 0)
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "fleet init --rebuild asks nodes for the uuid of their fleet: name some in GPUBUF_FLEET "
                              "or by --url, or give --uuid");
    return gb_cli_refused(cli, GB_CLI_UNREACHABLE,
                          "no node told the uuid of the fleet: start one, or give --uuid (\"gpubuf fleet\" shows it as "
                          "fleet_uuid)");
}

static int refuse_other(struct gb_cli *cli, const struct asked *asked, json_t *meta) {
    int rc =
        gb_cli_refused(cli, GB_CLI_FAILED,
                       "etcd has a record of the fleet \"%s\" with another uuid: %s, and the nodes' is %s. Is it the "
                       "etcd of these nodes? If that record was made by mistake, \"etcdctl del "
                       "/gpubuf/%s/meta\" removes it; then repeat this command",
                       asked->fleet, gb_cli_text(meta, "uuid"), asked->uuid, asked->fleet);

    json_decref(meta);
    return rc;
}

static void put_made(const struct gb_cli *cli, const char *fleet, json_t *meta, bool made) {
    bool again = cli->options.rebuild;

    printf("fleet %s %s: %s\n", fleet,
           !made   ? "was there and stays as it is"
           : again ? "is made again"
                   : "is made",
           gb_cli_text(meta, "uuid"));
    if (again && !cli->options.quiet)
        puts("Nodes that run join by themselves and register their sessions again, at higher epochs: \"gpubuf fleet "
             "nodes\" and\n\"gpubuf fleet sessions\" show them. Sessions of a node that is gone are not registered any "
             "more.");
}

int gb_cli_fleet_init(struct gb_cli *cli) {
    const struct gb_cli_options *o = &cli->options;
    struct asked asked = {.fleet = o->fleet_name != NULL ? o->fleet_name : "main"};
    int rc = GB_CLI_DONE;
    bool made = false;
    json_t *meta;

    if (o->etcd == NULL)
        return gb_cli_refused(cli, GB_CLI_USAGE, "fleet init takes --etcd URL[,URL], the addresses of etcd");
    if (o->uuid != NULL && !o->rebuild)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--uuid goes with --rebuild: a new fleet gets a uuid of its own");
    if (o->rebuild)
        rc = find_uuid(cli, &asked);
    if (rc != GB_CLI_DONE)
        return rc;
    meta = gb_cli_etcd_init(cli, o->etcd, asked.fleet, o->rebuild ? asked.uuid : NULL, &made);
    if (meta == NULL)
        return gb_cli_failed(cli);
    if (o->rebuild && strcmp(gb_cli_text(meta, "uuid"), asked.uuid) != 0)
        return refuse_other(cli, &asked, meta);
    json_object_set_new(meta, "fleet", json_string(asked.fleet));
    json_object_set_new(meta, "made", json_boolean(made));
    if (o->json)
        return gb_cli_show(cli, meta, NULL, 0);
    put_made(cli, asked.fleet, meta, made);
    json_decref(meta);
    return GB_CLI_DONE;
}
