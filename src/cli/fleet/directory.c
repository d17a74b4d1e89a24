/* fleet init: the first record of a fleet in its directory, by etcd's gateway of JSON, and the same again after the
 * directory lost it. Keys and values of its requests are base64, and its answers leave out what is a default. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/encoding.h"
#include "cli/fleet/fleet.h"
#include "curl/request.h"

#define UUID_SIZE 37 /* 8-4-4-4-12 hexadecimal digits, and a NUL */
#define CONNECT_MS 2000
#define ANSWER_MS 8000 /* etcd without a majority answers after 7 s */
#define TIMEOUT_MAX_S 4000000
#define ANSWER_MAX ((size_t)1 << 20)
#define NAME_MAX_BYTES 128
#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* --- base64 ------------------------------------------------------------------------------------------------------- */

static json_t *encoded(const char *text) {
    char *out = gb_base64(text, strlen(text), false);
    json_t *value = out ? json_string(out) : NULL;

    free(out);
    return value;
}

/* The JSON that stands in base64; NULL: it is not JSON. */
static json_t *decoded(const char *text) {
    size_t bytes;
    json_t *value;
    char *out;

    if (!text || !gb_base64_read(text, strlen(text), false, &out, &bytes))
        return NULL;
    value = json_loadb(out, bytes, 0, NULL);
    free(out);
    return value;
}

/* --- a request ---------------------------------------------------------------------------------------------------- */

/* authorization: a header; NULL: not given. */
static void post(struct gb_cli *cli, const char *url, const char *authorization, const char *body,
                 struct gb_http_ask *ret) {
    const struct gb_cli_options *o = &cli->options;
    struct gb_http_tls tls = {.ca = o->cacert, .cert = o->cert, .key = o->key ? o->key : o->cert};

    *ret = (struct gb_http_ask){.method = "POST", .url = url, .body = body, .body_bytes = strlen(body), .tls = &tls};
    ret->proxied = true;
    ret->connect_ms = CONNECT_MS;
    ret->total_ms = o->timeout > TIMEOUT_MAX_S ? TIMEOUT_MAX_S * 1000u
                    : o->timeout > 0           ? (unsigned)(o->timeout + 0.999) * 1000
                                               : ANSWER_MS;
    ret->answer_max = ANSWER_MAX;
    if (authorization)
        gb_http_ask_header(ret, authorization);
    gb_http_ask_perform(ret);
    ret->tls = NULL;
}

/* What the endpoint answers. NULL with cli->error: CANNOT_CONNECT if another one may know more. */
static json_t *ask_path(struct gb_cli *cli, const char *endpoint, const char *path, const char *authorization,
                        const char *body) {
    struct gb_http_ask answer;
    size_t n = strlen(endpoint);
    json_t *value = NULL;
    char url[1024];

    while (n > 0 && endpoint[n - 1] == '/')
        n--;
    snprintf(url, sizeof(url), "%.*s%s", (int)n, endpoint, path);
    post(cli, url, authorization, body, &answer);
    if (answer.outcome != GB_HTTP_OK)
        gb_cli_error(cli, GPUBUF_CANNOT_CONNECT, "etcd at %s does not answer: %s", endpoint, answer.said);
    else
        value = json_loadb(answer.answer ? answer.answer : "", answer.bytes, 0, NULL);
    if (answer.outcome == GB_HTTP_OK && (answer.status != 200 || !json_is_object(value))) {
        const char *why = gb_cli_text(value, "message");

        /* 503 and 504: this member has no majority, or is starting. */
        gb_cli_error(cli, answer.status > 500 ? GPUBUF_CANNOT_CONNECT : GPUBUF_BAD_ANSWER,
                     "etcd at %s answered with status %d%s%s", endpoint, answer.status, why[0] != '\0' ? ": " : "",
                     why[0] != '\0'         ? why
                     : answer.status == 200 ? ", and no JSON; is this an etcd?"
                                            : "");
        json_decref(value);
        value = NULL;
    }
    free(answer.answer);
    return value;
}

/* The header of the user that --etcd-user names. NULL with cli->error. */
static char *log_in(struct gb_cli *cli, const char *endpoint) {
    const char *path = cli->options.etcd_user;
    const char *why = NULL;
    char *user = gb_cli_read_token(path, &why);
    char *colon = user ? strchr(user, ':') : NULL;
    json_t *body = NULL;
    json_t *answer = NULL;
    char *header = NULL;
    char *text = NULL;

    if (colon) {
        *colon = '\0';
        body = json_pack("{s:s, s:s}", "name", user, "password", colon + 1);
        text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    }
    if (text)
        answer = ask_path(cli, endpoint, "/v3/auth/authenticate", NULL, text);
    else
        gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--etcd-user %s: %s", path,
                     !user ? why : "the first line is not NAME:PASSWORD");
    if (answer && asprintf(&header, "Authorization: %s", gb_cli_text(answer, "token")) < 0)
        header = NULL;
    json_decref(answer);
    json_decref(body);
    free(text);
    free(user);
    return header;
}

static json_t *ask(struct gb_cli *cli, const char *endpoint, const char *body) {
    char *header = NULL;
    json_t *value;

    if (cli->options.etcd_user) {
        header = log_in(cli, endpoint);
        if (!header)
            return NULL;
    }
    value = ask_path(cli, endpoint, "/v3/kv/txn", header, body);
    free(header);
    return value;
}

static json_t *ask_any(struct gb_cli *cli, const char *endpoints, const char *body) {
    json_t *value = NULL;
    char endpoint[512];

    gb_cli_error(cli, GPUBUF_BAD_ARGUMENT, "--etcd names no address: it is http[s]://HOST:PORT[,...]");
    while (!value && *endpoints != '\0') {
        size_t n = strcspn(endpoints, ",");

        if (n > 0 && n < sizeof(endpoint)) {
            snprintf(endpoint, sizeof(endpoint), "%.*s", (int)n, endpoints);
            value = ask(cli, endpoint, body);
        }
        if (!value && cli->error.code != GPUBUF_CANNOT_CONNECT)
            return NULL;
        endpoints += n + (endpoints[n] == ',');
    }
    return value;
}

/* --- the record --------------------------------------------------------------------------------------------------- */

static int make_uuid(char ret[UUID_SIZE]) {
    unsigned char b[16];

    if (getrandom(b, sizeof(b), 0) != sizeof(b))
        return -1;
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40); /* RFC 4122: at random */
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    gb_uuid_text(b, ret);
    return 0;
}

/* Puts the record, or reads the one that is there. */
static char *request_of(const char *fleet, const char *uuid) {
    char key[NAME_MAX_BYTES + 32];
    char record[96];
    json_t *body;
    char *text;

    snprintf(key, sizeof(key), "/gpubuf/%s/meta", fleet);
    snprintf(record, sizeof(record), "{\"uuid\":\"%s\",\"schema\":1}", uuid);
    body = json_pack("{s:[{s:o, s:s, s:s, s:s}], s:[{s:{s:o, s:o}}], s:[{s:{s:o}}]}", "compare", "key", encoded(key),
                     "target", "CREATE", "result", "EQUAL", "create_revision", "0", "success", "request_put", "key",
                     encoded(key), "value", encoded(record), "failure", "request_range", "key", encoded(key));
    text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

static json_t *record_there(struct gb_cli *cli, json_t *answer) {
    json_t *range = json_object_get(json_array_get(json_object_get(answer, "responses"), 0), "response_range");
    json_t *pair = json_array_get(json_object_get(range, "kvs"), 0);
    json_t *record = decoded(json_string_value(json_object_get(pair, "value")));

    if (!record || gb_cli_text(record, "uuid")[0] == '\0') {
        gb_cli_error(cli, GPUBUF_BAD_ANSWER, "etcd has another record where that of the fleet is to be");
        json_decref(record);
        return NULL;
    }
    return record;
}

/* Makes the record by which nodes know their fleet, in etcd. known: its uuid; NULL: a new one. ret_made: false if a
 * record was there, perhaps with another uuid. The record; NULL with cli->error. */
static json_t *etcd_init(struct gb_cli *cli, const char *endpoints, const char *fleet, const char *known,
                         bool *ret_made) {
    size_t n = strlen(fleet);
    json_t *answer = NULL;
    json_t *record = NULL;
    char uuid[UUID_SIZE];
    char *body;

    if (n == 0 || n > NAME_MAX_BYTES || strspn(fleet, NAME_LETTERS) != n || fleet[0] == '.') {
        gb_cli_error(cli, GPUBUF_BAD_ARGUMENT,
                     "\"%.64s\" is no name of a fleet: letters, digits, '.', '_' and '-', at most %d", fleet,
                     NAME_MAX_BYTES);
        return NULL;
    }
    if (known) {
        snprintf(uuid, sizeof(uuid), "%s", known);
    } else if (make_uuid(uuid) < 0) {
        gb_cli_error(cli, GPUBUF_INPUT_FAILED, "the kernel gives no random bytes: %s", strerror(errno));
        return NULL;
    }
    body = request_of(fleet, uuid);
    if (!body)
        gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");
    else
        answer = ask_any(cli, endpoints, body);
    free(body);
    *ret_made = json_is_true(json_object_get(answer, "succeeded"));
    if (answer)
        record = *ret_made ? json_pack("{s:s, s:i}", "uuid", uuid, "schema", 1) : record_there(cli, answer);
    json_decref(answer);
    return record;
}

/* --- fleet init --------------------------------------------------------------------------------------------------- */

/* What the nodes know of their fleet. */
struct asked {
    const char *fleet;           /* its name */
    char uuid[UUID_SIZE];        /* "": no node reported it */
    char node[GPUBUF_NAME_SIZE]; /* that reported it */
    unsigned count;              /* of addresses */
};

static bool is_uuid(const char *text) {
    size_t i;

    for (i = 0; text[i] != '\0'; i++) {
        bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;

        if (hyphen ? text[i] != '-' : gb_hex_digit(text[i]) < 0)
            return false;
    }
    return i == UUID_SIZE - 1;
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
    snprintf(asked->uuid, sizeof(asked->uuid), "%.36s", uuid);
    snprintf(asked->node, sizeof(asked->node), "%s", node);
    return 0;
}

static int ask_node(struct gb_cli *cli, const char *url, struct asked *asked) {
    const struct gpubuf_answer *answer;
    struct gpubuf_error err = {.code = GPUBUF_OK};
    gpubuf_client *client;
    json_t *told = NULL;
    int r;

    asked->count++;
    if (gb_cli_fleet_open(cli, url, &client) < 0)
        return -1;
    r = gpubuf_request(client, "GET", "/v1/fleet", NULL, NULL, 0, &err);
    answer = gpubuf_answer_of(client);
    if (r == 0)
        told = json_loadb(answer->body, answer->bytes, 0, NULL);
    gpubuf_close(client);
    if (r < 0)
        pass_over(url, err.detail[0] != '\0' ? err.detail : err.title);
    else if (gb_cli_text(told, "state")[0] == '\0')
        pass_over(url, "the answer is not what a gpubufd says");
    else if (strcmp(gb_cli_text(told, "state"), "none") == 0)
        pass_over(url, "it is in no fleet");
    else if (gb_cli_text(told, "fleet_uuid")[0] == '\0')
        pass_over(url, "it has joined no fleet yet, and does not know the uuid");
    else
        r = take_uuid(cli, asked, told);
    json_decref(told);
    return r < 0 && err.code == GPUBUF_OK ? -1 : 0;
}

/* Those of --url, else of GPUBUF_FLEET. */
static int ask_nodes(struct gb_cli *cli, struct asked *asked) {
    const char *list = cli->options.url ? cli->options.url : getenv("GPUBUF_FLEET");
    char *copy = strdup(list ? list : "");
    char *rest = copy;
    char *url;
    int r = copy ? 0 : gb_cli_error(cli, GPUBUF_NO_MEMORY, "out of memory");

    while (r == 0 && (url = strsep(&rest, ", "))) {
        if (url[0] != '\0')
            r = ask_node(cli, url, asked);
    }
    free(copy);
    return r;
}

/* The uuid that the record is to have again. The exit status of what was said, or GB_CLI_DONE. */
static int find_uuid(struct gb_cli *cli, struct asked *asked) {
    const char *given = cli->options.uuid;

    if (given && !is_uuid(given))
        return gb_cli_refused(cli, GB_CLI_USAGE, "--uuid \"%.64s\" is no uuid: 8-4-4-4-12 hexadecimal digits", given);
    if (given)
        snprintf(asked->uuid, sizeof(asked->uuid), "%s", given);
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
    int r =
        gb_cli_refused(cli, GB_CLI_FAILED,
                       "etcd has a record of the fleet \"%s\" with another uuid: %s, and the nodes' is %s. Is it the "
                       "etcd of these nodes? If that record was made by mistake, \"etcdctl del "
                       "/gpubuf/%s/meta\" removes it; then repeat this command",
                       asked->fleet, gb_cli_text(meta, "uuid"), asked->uuid, asked->fleet);

    json_decref(meta);
    return r;
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
    struct asked asked = {.fleet = o->fleet_name ? o->fleet_name : "main"};
    int r = GB_CLI_DONE;
    bool made = false;
    json_t *meta;

    if (!o->etcd)
        return gb_cli_refused(cli, GB_CLI_USAGE, "fleet init takes --etcd URL[,URL], the addresses of etcd");
    if (o->uuid && !o->rebuild)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--uuid goes with --rebuild: a new fleet gets a uuid of its own");
    if (o->rebuild)
        r = find_uuid(cli, &asked);
    if (r != GB_CLI_DONE)
        return r;
    meta = etcd_init(cli, o->etcd, asked.fleet, o->rebuild ? asked.uuid : NULL, &made);
    if (!meta)
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
