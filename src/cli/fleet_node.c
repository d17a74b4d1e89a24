/* The node of a fleet that a command asks. */
#include <stdlib.h>
#include <string.h>

#include "cli/fleet.h"

#define PATIENCE_S 3 /* with one node, before the next is asked */

static bool is_silent(const struct gpubuf_error *err) {
    return err->code == GPUBUF_CANNOT_CONNECT || err->code == GPUBUF_CONNECTION_LOST ||
           err->code == GPUBUF_CLIENT_TIMEOUT || err->code == GPUBUF_TLS_FAILED;
}

int gb_cli_fleet_open(struct gb_cli *cli, const char *url, gpubuf_client **ret) {
    double usual = cli->options.timeout;
    int rc;

    if (usual <= 0 || usual > PATIENCE_S)
        cli->options.timeout = PATIENCE_S;
    rc = gb_cli_open(cli, url, NULL, ret);
    cli->options.timeout = usual;
    return rc;
}

/* Whether the daemon there answers this client: a token of one node need not be known to another, and then the way by
 * the first node's redirects, with tickets, is the one that works. */
static bool lets_in(struct gb_cli *cli, const char *url) {
    struct gpubuf_error err;
    gpubuf_client *client;
    bool in;

    if (gb_cli_fleet_open(cli, url, &client) < 0)
        return false;
    in = gpubuf_request(client, "HEAD", "/v1", NULL, NULL, 0, &err) == 0;
    gpubuf_close(client);
    return in;
}

/* "http://host:7070/prefix" of "http://host:7070/prefix/v1/sessions/s". */
static void read_owner(json_t *found, struct gb_cli_owner *ret) {
    const char *url = gb_cli_text(found, "url");
    const char *path = strstr(url, "/v1/sessions/");

    snprintf(ret->node, sizeof ret->node, "%s", gb_cli_text(found, "node"));
    snprintf(ret->url, sizeof ret->url, "%.*s", (int)(path != NULL ? (size_t)(path - url) : strlen(url)), url);
    ret->epoch = (uint64_t)json_integer_value(json_object_get(found, "epoch"));
}

/* Asks for the owner of the command's session. *ret_alive: it has an address and is alive. 0, or -1 with err. */
static int find_owner(struct gb_cli *cli, gpubuf_client *client, bool *ret_alive, struct gpubuf_error *err) {
    const struct gpubuf_answer *answer = gpubuf_answer_of(client);
    char target[GB_CLI_PATH];
    json_t *found;

    if (gb_cli_target(cli, target, "/v1/fleet/sessions/{}", cli->session) < 0) {
        *err = cli->error;
        return -1;
    }
    if (gpubuf_request(client, "GET", target, NULL, NULL, 0, err) < 0)
        return -1;
    found = json_loadb(answer->body, answer->bytes, 0, NULL);
    read_owner(found, &cli->owner);
    *ret_alive = json_is_true(json_object_get(found, "owner_alive")) && cli->owner.url[0] != '\0';
    json_decref(found);
    return 0;
}

/* 1: it answers; *ret_owner is a URL to be freed, or NULL. 0: it does not. -1 with cli->error. */
static int ask(struct gb_cli *cli, const char *url, char **ret_owner) {
    bool named = strcmp(cli->session, "default") != 0 && strcmp(cli->command->name, "fleet") != 0;
    struct gpubuf_error err;
    gpubuf_client *client;
    bool alive = false;
    int rc;

    *ret_owner = NULL;
    if (gb_cli_fleet_open(cli, url, &client) < 0)
        return -1;
    if (named)
        rc = find_owner(cli, client, &alive, &err);
    else
        rc = gpubuf_request(client, "GET", "/livez", NULL, NULL, 0, &err);
    if (alive)
        *ret_owner = strdup(cli->owner.url);
    gpubuf_close(client);
    return rc == 0 || !is_silent(&err);
}

static int take(struct gb_cli *cli, const char *url, char *owner) {
    bool straight = owner != NULL && lets_in(cli, owner);

    free(cli->node);
    cli->node = straight ? owner : strdup(url);
    if (!straight)
        free(owner);
    return cli->node != NULL ? 0 : gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");
}

static int choose(struct gb_cli *cli, char *list) {
    char *rest = list;
    char *first = NULL;
    char *url;

    while ((url = strsep(&rest, ", ")) != NULL) {
        char *owner;
        int rc;

        if (url[0] == '\0')
            continue;
        rc = ask(cli, url, &owner);
        if (rc != 0)
            return rc < 0 ? -1 : take(cli, url, owner);
        if (first == NULL)
            first = url;
    }
    return first != NULL ? take(cli, first, NULL) : 0;
}

int gb_cli_fleet_choose(struct gb_cli *cli) {
    const char *list = getenv("GPUBUF_FLEET");
    char *copy;
    int rc;

    if (list == NULL || list[0] == '\0' || cli->options.url != NULL || cli->options.socket != NULL ||
        cli->options.etcd != NULL)
        return 0;
    copy = strdup(list);
    if (copy == NULL)
        return gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");
    rc = choose(cli, copy);
    free(copy);
    return rc;
}

/* --- nodes as hosts ----------------------------------------------------------------------------------------------- */

json_t *gb_cli_labels(struct gb_cli *cli, const char *option, const char *text) {
    json_t *labels = json_object();

    while (*text != '\0') {
        size_t n = strcspn(text, ",");
        const char *sign = memchr(text, '=', n);
        size_t key = sign != NULL ? (size_t)(sign - text) : 0;

        if (key == 0 || json_object_setn_new(labels, text, key, json_stringn(sign + 1, n - key - 1)) < 0) {
            json_decref(labels);
            gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "%s is KEY=VALUE,... in UTF-8", option);
            return NULL;
        }
        text += n + (text[n] == ',');
    }
    return labels;
}

const char *gb_cli_fleet_url(json_t *fleet, json_t *node, const char *own) {
    json_t *urls = json_object_get(node, "urls");
    const char *found = NULL;
    const char *network;
    json_t *url;

    json_object_foreach(json_object_get(fleet, "urls"), network, url) {
        if (json_is_string(url) && strcmp(json_string_value(url), own) == 0)
            found = json_string_value(json_object_get(urls, network));
    }
    if (found == NULL)
        found = json_string_value(json_object_get(urls, "default"));
    if (found == NULL)
        found = json_string_value(json_object_iter_value(json_object_iter(urls)));
    return found != NULL ? found : "";
}

static bool has_labels(json_t *node, json_t *wanted) {
    json_t *labels = json_object_get(node, "labels");
    const char *key;
    json_t *value;

    json_object_foreach(wanted, key, value) {
        if (!json_equal(json_object_get(labels, key), value))
            return false;
    }
    return true;
}

static int add_nodes(struct gb_cli *cli, json_t *fleet, json_t *nodes, json_t *wanted, struct gb_cli_hosts *ret) {
    json_t *node;
    size_t i;

    json_array_foreach(nodes, i, node) {
        const char *url = gb_cli_fleet_url(fleet, node, gpubuf_url(cli->client));

        if (url[0] != '\0' && has_labels(node, wanted) && gb_cli_hosts_add(ret, gb_cli_text(node, "name"), url) < 0)
            return gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");
    }
    return 0;
}

int gb_cli_fleet_hosts(struct gb_cli *cli, const char *labels, struct gb_cli_hosts *ret) {
    json_t *wanted = gb_cli_labels(cli, "--hosts @", labels);
    json_t *fleet = wanted != NULL ? gb_cli_request(cli, "GET", "/v1/fleet", NULL) : NULL;
    json_t *nodes = fleet != NULL ? gb_cli_items(cli, "/v1/fleet/nodes") : NULL;
    int rc = nodes != NULL ? add_nodes(cli, fleet, nodes, wanted, ret) : -1;

    json_decref(nodes);
    json_decref(fleet);
    json_decref(wanted);
    return rc;
}
