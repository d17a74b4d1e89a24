/* The list of hosts, and what is said of each. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf.h"
#include "cli/cli.h"
#include "cli/hosts.h"

#define PORT "7070"
#define LINE_BYTES 1024

static char *url_of(const char *name) {
    const char *colon = strrchr(name, ':');
    const char *bracket = strrchr(name, ']');
    char *url = NULL;

    if (strstr(name, "://") != NULL)
        return strdup(name);
    if (asprintf(&url, "http://%s%s", name, colon != NULL && (bracket == NULL || colon > bracket) ? "" : ":" PORT) < 0)
        return NULL;
    return url;
}

int gb_cli_hosts_add(struct gb_cli_hosts *hosts, const char *name, const char *url) {
    struct gb_cli_host host = {.fds = {-1, -1}};
    struct gb_cli_host *items = realloc(hosts->items, (hosts->count + 1) * sizeof *items);

    if (items == NULL)
        return -1;
    hosts->items = items;
    host.name = strdup(name);
    host.url = url != NULL ? strdup(url) : host.name != NULL ? url_of(name) : NULL;
    items[hosts->count++] = host;
    return host.name != NULL && host.url != NULL ? 0 : -1;
}

static bool has(const struct gb_cli_hosts *hosts, const char *name, size_t n) {
    size_t i;

    for (i = 0; i < hosts->count; i++)
        if (strlen(hosts->items[i].name) == n && memcmp(hosts->items[i].name, name, n) == 0)
            return true;
    return false;
}

/* A host that is named twice is asked once. */
static int add(struct gb_cli_hosts *hosts, const char *text, size_t n) {
    char *name;
    int rc;

    while (n > 0 && strchr(" \t\r\n", text[n - 1]) != NULL)
        n--;
    while (n > 0 && strchr(" \t", text[0]) != NULL) {
        text++;
        n--;
    }
    if (n == 0 || has(hosts, text, n))
        return 0;
    name = strndup(text, n);
    rc = name != NULL ? gb_cli_hosts_add(hosts, name, NULL) : -1;
    free(name);
    return rc;
}

static int read_file(FILE *file, struct gb_cli_hosts *hosts, const char **ret_why) {
    char line[LINE_BYTES];
    bool first = true;
    int rc = 0;

    for (; rc == 0 && fgets(line, sizeof line, file) != NULL; first = false) {
        *ret_why = first ? gb_conf_mark(line) : NULL;
        rc = *ret_why == NULL ? add(hosts, line, strcspn(line, "#")) : -1;
    }
    return rc == 0 && !ferror(file) ? 0 : -1;
}

int gb_cli_hosts_list(const char *text, struct gb_cli_hosts *ret) {
    struct gb_cli_hosts hosts = {0};
    int rc = 0;

    while (rc == 0 && *text != '\0') {
        size_t n = strcspn(text, ",");

        rc = add(&hosts, text, n);
        text += n + (text[n] == ',');
    }
    if (rc < 0)
        gb_cli_hosts_done(&hosts);
    else
        *ret = hosts;
    return rc;
}

int gb_cli_hosts_read(const char *text, struct gb_cli_hosts *ret, const char **ret_why) {
    struct gb_cli_hosts hosts = {0};
    const char *why = NULL;
    FILE *file = NULL;
    int rc;

    if (strcmp(text, "-") != 0 && access(text, F_OK) != 0) {
        rc = gb_cli_hosts_list(text, &hosts);
    } else {
        file = strcmp(text, "-") == 0 ? stdin : fopen(text, "re");
        rc = file != NULL ? read_file(file, &hosts, &why) : -1;
    }
    if (rc < 0)
        *ret_why = why != NULL ? why : strerror(errno);
    if (file != NULL && file != stdin)
        fclose(file);
    if (rc < 0)
        gb_cli_hosts_done(&hosts);
    else
        *ret = hosts;
    return rc;
}

void gb_cli_hosts_done(struct gb_cli_hosts *hosts) {
    size_t i;

    for (i = 0; i < hosts->count; i++) {
        free(hosts->items[i].name);
        free(hosts->items[i].url);
        free(hosts->items[i].out[0].data);
        free(hosts->items[i].out[1].data);
    }
    free(hosts->items);
    *hosts = (struct gb_cli_hosts){0};
}

static const char *next_line(const char *text) {
    text += strcspn(text, "\n");
    return text + (*text == '\n');
}

static bool is_trace(const char *line) {
    return strncmp(line, GB_CLI_TRACE, strlen(GB_CLI_TRACE)) == 0;
}

/* The first line of what it said on standard error that is no trace, without the program's name. */
static void reason_of(const struct gb_cli_host *host, double timeout_s, char *ret, size_t size) {
    const char *text = host->out[1].data != NULL ? host->out[1].data : "";

    while (is_trace(text))
        text = next_line(text);
    if (strncmp(text, "gpubuf: ", 8) == 0)
        text += 8;
    if (host->timed_out)
        snprintf(ret, size, "no answer within %g s", timeout_s);
    else if (text[0] == '\0')
        snprintf(ret, size, "ended with status %d", host->status);
    else
        snprintf(ret, size, "%.*s", (int)strcspn(text, "\n"), text);
}

static void show_json(const struct gb_cli_host *host, const char *reason) {
    json_t *result =
        host->out[0].bytes > 0 ? json_loadb(host->out[0].data, host->out[0].bytes, JSON_DECODE_ANY, NULL) : NULL;
    json_t *line = json_pack("{s:s, s:s, s:i}", "host", host->name, "url", host->url, "exit", host->status);

    if (line == NULL)
        line = json_pack("{s:s, s:i}", "host", "?", "exit", host->status);
    json_object_set_new(line, "result", host->status == 0 && result != NULL ? json_incref(result) : json_null());
    if (host->status != 0) {
        json_object_set_new(line, "error", json_string(reason));
        if (json_is_object(result))
            json_object_set(line, "problem", result);
    }
    gb_cli_json(stdout, line);
    json_decref(line);
    json_decref(result);
}

/* Names come from lists that others may have written. */
static void put_line(FILE *out, const char *host, const char *before, const char *text) {
    gb_cli_put(out, host);
    fprintf(out, ": %s", before);
    gb_cli_put(out, text);
    fputs("\n", out);
}

static void put_lines(FILE *out, const char *host, const char *text, bool (*wanted)(const char *line)) {
    char line[GB_CLI_CELL * 16];

    for (; *text != '\0'; text = next_line(text)) {
        if (wanted != NULL && !wanted(text))
            continue;
        snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
        put_line(out, host, "", line);
    }
}

void gb_cli_host_show(const struct gb_cli_host *host, bool json, double timeout_s) {
    char reason[1024] = "";

    if (host->status != 0)
        reason_of(host, timeout_s, reason, sizeof reason);
    if (host->out[1].data != NULL)
        put_lines(stderr, host->name, host->out[1].data, is_trace);
    if (json) {
        show_json(host, reason);
        return;
    }
    if (host->out[0].data != NULL)
        put_lines(stdout, host->name, host->out[0].data, NULL);
    if (host->status != 0)
        put_line(stdout, host->name, "failed: ", reason);
    else if (host->out[0].bytes == 0)
        put_line(stdout, host->name, "", "ok");
    if (host->out[0].cut)
        put_line(stdout, host->name, "", "(the rest is left out)");
}
