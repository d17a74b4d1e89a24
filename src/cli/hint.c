#include "cli/hint.h"

#include <stdlib.h>
#include <string.h>

/* --- conditions --------------------------------------------------------------------------------------------------- */

static bool token_given(const struct gb_cli *cli, json_t *problem) {
    const char *environment = getenv("GPUBUF_TOKEN");

    (void)problem;
    return cli->token != NULL ? cli->token[0] != '\0' : environment != NULL && environment[0] != '\0';
}

/* Too many requests of the address had a token that is not known. */
static bool barred(const struct gb_cli *cli, json_t *problem) {
    (void)cli;
    return strcmp(gb_cli_text(problem, "limit.name"), "failures") == 0;
}

/* Room that will never be there is not made by trimming. */
static bool may_pass(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return cli->error.retryable;
}

/* A path that the user wrote says nothing of versions. */
static bool own_path(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return strcmp(cli->command->name, "call") != 0;
}

static bool of_etcd(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return cli->options.etcd != NULL;
}

/* The owner of the session had been found, and does not answer. */
static bool of_owner(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return gb_cli_is_of_owner(cli);
}

/* Nothing says where the fleet is. */
static bool of_no_node(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return strcmp(cli->command->name, "fleet") == 0 && cli->node == NULL && cli->options.url == NULL &&
           getenv("GPUBUF_URL") == NULL;
}

static bool of_fleet(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return strcmp(cli->command->name, "fleet") == 0 || cli->node != NULL;
}

/* A proxy may have gpubufd below a path; the daemon itself has nothing there. */
static bool of_path(const struct gb_cli *cli, json_t *problem) {
    const char *url = gpubuf_url(cli->client);
    const char *host = strstr(url, "://");
    const char *path = host != NULL && strncmp(url, "http", 4) == 0 ? strchr(host + 3, '/') : NULL;

    (void)problem;
    return path != NULL && path[strspn(path, "/")] != '\0';
}

/* The name that is missed could be that of a file, with its ending: session "s" has no buffer named "x.npy". */
static bool of_ending(const struct gb_cli *cli, json_t *problem) {
    const char *named = strstr(cli->error.detail, " named \"");
    const char *dot = named != NULL ? strrchr(named, '.') : NULL;

    (void)problem;
    return dot != NULL && strchr(dot, '"') != NULL && dot[1] != '"';
}

/* The daemon names a parameter of its own, where this program has an option. */
static bool says(const struct gb_cli *cli, const char *parameter) {
    return strcmp(cli->command->name, "call") != 0 && strstr(cli->error.detail, parameter) != NULL;
}

static bool says_format(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return says(cli, "?format=raw");
}

static bool says_slice(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return says(cli, "?slice=");
}

static bool of_copy(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return strcmp(cli->command->name, "cp") == 0;
}

/* One buffer refuses the whole, which an option changes. */
static bool of_checkpoint(const struct gb_cli *cli, json_t *problem) {
    (void)problem;
    return strcmp(cli->command->name, "checkpoints") == 0 && !cli->options.lenient;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

#define ALWAYS NULL
#define TOKEN_GIVEN token_given
#define BARRED barred
#define MAY_PASS may_pass
#define OWN_PATH own_path
#define OF_ETCD of_etcd
#define OF_OWNER of_owner
#define OF_NO_NODE of_no_node
#define OF_FLEET of_fleet
#define OF_COPY of_copy
#define OF_PATH of_path
#define OF_ENDING of_ending
#define SAYS_FORMAT says_format
#define SAYS_SLICE says_slice
#define OF_CHECKPOINT of_checkpoint

static const struct {
    int code;
    bool (*when)(const struct gb_cli *cli, json_t *problem);
    const char *text;
} hints[] = {
#define GB_CLI_HINT(code, when, text) {GPUBUF_##code, when, text},
#include "cli/hints.def"
#undef GB_CLI_HINT
};

json_t *gb_cli_problem(const struct gb_cli *cli) {
    const struct gpubuf_answer *answer = cli->client != NULL ? gpubuf_answer_of(cli->client) : NULL;
    json_t *problem = NULL;

    if (cli->error.status >= 400 && answer != NULL && answer->body != NULL)
        problem = json_loadb(answer->body, answer->bytes, 0, NULL);
    if (json_is_object(problem) && strcmp(gb_cli_text(problem, "code"), cli->error.slug) == 0)
        return problem;
    json_decref(problem);
    return json_pack("{s:s, s:s, s:b, s:i}", "code", cli->error.slug, "detail", cli->error.detail, "retryable",
                     cli->error.retryable, "status", cli->error.status);
}

const char *gb_cli_hint(const struct gb_cli *cli) {
    json_t *problem = gb_cli_problem(cli);
    const char *found = NULL;
    size_t i;

    for (i = 0; i < sizeof hints / sizeof hints[0] && found == NULL; i++)
        if (hints[i].code == cli->error.code && (hints[i].when == NULL || hints[i].when(cli, problem)))
            found = hints[i].text;
    json_decref(problem);
    return found;
}
