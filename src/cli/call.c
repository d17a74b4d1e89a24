/* call: any request, for what has no command of its own. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/files.h"

#define BODY_BYTES (64u << 20)
#define PRETTY (JSON_ENCODE_ANY | JSON_INDENT(2) | JSON_REAL_PRECISION(15))

static char *read_all(FILE *file, size_t *ret_bytes) {
    char *text = malloc(BODY_BYTES + 1);

    if (text == NULL)
        return NULL;
    *ret_bytes = fread(text, 1, BODY_BYTES + 1, file);
    if (ferror(file) || *ret_bytes > BODY_BYTES) {
        errno = ferror(file) ? errno : EFBIG;
        free(text);
        return NULL;
    }
    text[*ret_bytes] = '\0';
    return text;
}

static char *read_file(const struct gb_cli *cli, const char *given, size_t *ret_bytes) {
    char *path = gb_cli_host_path(cli, given);
    FILE *file = path != NULL ? fopen(path, "re") : NULL;
    char *text = file != NULL ? read_all(file, ret_bytes) : NULL;
    int error = errno;

    if (file != NULL)
        fclose(file);
    free(path);
    errno = error;
    return text;
}

#define CONTENT_TYPE "content-type:"

/* --header says what the body is; without it, and where it says so, it is JSON. */
static bool names_type(const struct gb_cli *cli) {
    const char *header = cli->options.header;

    return header != NULL && strncasecmp(header, CONTENT_TYPE, strlen(CONTENT_TYPE)) == 0;
}

static int check_json(struct gb_cli *cli, const char *body, size_t bytes) {
    json_error_t why;
    json_t *value;

    if (names_type(cli) && strstr(cli->options.header, "json") == NULL)
        return 0;
    value = json_loadb(body, bytes, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &why);
    if (value == NULL)
        return gb_cli_refused(cli, GB_CLI_USAGE,
                              "the body is not JSON: %s, at byte %d; bytes of another type go with "
                              "--header \"Content-Type: application/octet-stream\"",
                              why.text, why.position);
    json_decref(value);
    return 0;
}

/* The body: the argument itself, "-" for standard input or "@FILE". */
static int read_body(struct gb_cli *cli, const char *given, char **ret, size_t *ret_bytes) {
    if (cli->host != NULL && strcmp(given, "-") == 0)
        return gb_cli_refused(cli, GB_CLI_USAGE, "standard input cannot go to several hosts; name a file: @FILE");
    if (strcmp(given, "-") == 0)
        *ret = read_all(stdin, ret_bytes);
    else if (given[0] == '@')
        *ret = read_file(cli, given + 1, ret_bytes);
    else if ((*ret = strdup(given)) != NULL)
        *ret_bytes = strlen(given);
    if (*ret == NULL)
        return gb_cli_refused(cli, GB_CLI_FAILED, "the body \"%s\" cannot be read: %s", given, strerror(errno));
    return check_json(cli, *ret, *ret_bytes);
}

/* A terminal obeys control characters; JSON has them escaped, and text keeps its lines. */
static void put_terminal(const struct gpubuf_answer *answer) {
    json_t *value = json_loadb(answer->body, answer->bytes, JSON_DECODE_ANY, NULL);
    char *text = value != NULL ? json_dumps(value, PRETTY) : NULL;
    const char *at = text != NULL ? text : answer->body;

    while (*at != '\0') {
        char line[4096];
        size_t n = strcspn(at, "\n");
        size_t shown = n < sizeof line ? n : sizeof line - 1;

        snprintf(line, sizeof line, "%.*s", (int)shown, at);
        gb_cli_put(stdout, line);
        at += shown;
        if (shown == n)
            putchar('\n');
        at += shown == n && *at == '\n';
    }
    free(text);
    json_decref(value);
}

static int put_answer(struct gb_cli *cli, const struct gpubuf_answer *answer) {
    bool text = strncmp(answer->content_type, "text/", 5) == 0 || strstr(answer->content_type, "json") != NULL;

    if (answer->bytes == 0)
        return GB_CLI_DONE;
    if (isatty(STDOUT_FILENO) && !text)
        return gb_cli_refused(cli, GB_CLI_USAGE, "%zu bytes of %s are not for a terminal; send them into a file",
                              answer->bytes, answer->content_type);
    if (isatty(STDOUT_FILENO)) {
        put_terminal(answer);
        return GB_CLI_DONE;
    }
    fwrite(answer->body, 1, answer->bytes, stdout);
    return GB_CLI_DONE;
}

static int ask(struct gb_cli *cli, char **argv, const char *const *headers, const char *body, size_t bytes) {
    int rc;

    do
        rc = gpubuf_request(cli->client, argv[0], argv[1], headers, body, bytes, &cli->error);
    while (rc < 0 && gb_cli_again(cli));
    return rc;
}

int gb_cli_run_call(struct gb_cli *cli, int argc, char **argv) {
    const char *headers[3] = {cli->options.header, NULL, NULL};
    char *body = NULL;
    size_t bytes = 0;
    int rc = argc > 2 ? read_body(cli, argv[2], &body, &bytes) : 0;

    if (body != NULL && !names_type(cli))
        headers[headers[0] != NULL] = "Content-Type: application/json";
    if (rc == 0 && ask(cli, argv, headers, body, bytes) < 0) {
        /* The problem document is the body that was received. */
        cli->options.json |= cli->error.status >= 400 && cli->host == NULL && !isatty(STDOUT_FILENO);
        rc = gb_cli_failed(cli);
    } else if (rc == 0) {
        rc = put_answer(cli, gpubuf_answer_of(cli->client));
    }
    free(body);
    return rc;
}
