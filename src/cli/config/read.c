/* Reads the configuration file. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/conf.h"
#include "base/nearest.h"
#include "base/parse.h"
#include "cli/config/config.h"

#define OPEN_MODES 077 /* that let others at the file */

#define TOP GB_CLI_CONFIG_TOP
#define HOST GB_CLI_CONFIG_HOST
#define GROUP GB_CLI_CONFIG_GROUP
#define ACCESS GB_CLI_CONFIG_ACCESS
#define FILE_OF_IT (ACCESS | GB_CLI_CONFIG_PATH)

const struct gb_cli_config_spec gb_cli_config_specs[GB_CLI_CONFIG_IDS] = {
    [GB_CLI_CONFIG_URL] = {"url", "GPUBUF_URL", GB_CLI_ID_url, TOP | HOST | ACCESS},
    [GB_CLI_CONFIG_TOKEN_FILE] = {"token-file", "GPUBUF_TOKEN", GB_CLI_ID_token_file, TOP | HOST | FILE_OF_IT},
    [GB_CLI_CONFIG_TOKEN] = {"token", "GPUBUF_TOKEN", -1, TOP | HOST | ACCESS | GB_CLI_CONFIG_SECRET},
    [GB_CLI_CONFIG_CACERT] = {"cacert", "GPUBUF_CACERT", GB_CLI_ID_cacert, TOP | HOST | FILE_OF_IT},
    [GB_CLI_CONFIG_CERT] = {"cert", "GPUBUF_CERT", GB_CLI_ID_cert, TOP | HOST | FILE_OF_IT},
    [GB_CLI_CONFIG_KEY] = {"key", "GPUBUF_KEY", GB_CLI_ID_key, TOP | HOST | FILE_OF_IT},
    [GB_CLI_CONFIG_PLAIN_TOKEN] = {"plain-token", "GPUBUF_PLAIN_TOKEN", GB_CLI_ID_plain_token, TOP | HOST | ACCESS},
    [GB_CLI_CONFIG_SESSION] = {"session", "GPUBUF_SESSION", GB_CLI_ID_session, TOP | HOST},
    [GB_CLI_CONFIG_TIMEOUT] = {"timeout", NULL, GB_CLI_ID_timeout, TOP | HOST},
    [GB_CLI_CONFIG_JSON] = {"json", NULL, GB_CLI_ID_json, TOP | HOST},
    [GB_CLI_CONFIG_QUIET] = {"quiet", NULL, GB_CLI_ID_quiet, TOP | HOST},
    [GB_CLI_CONFIG_PARALLEL] = {"parallel", NULL, GB_CLI_ID_parallel, TOP},
    [GB_CLI_CONFIG_DEFAULT_HOST] = {"host", "GPUBUF_HOST", GB_CLI_ID_host, TOP},
    [GB_CLI_CONFIG_HOSTS] = {"hosts", NULL, -1, GROUP},
};

/* One file, line by line. */
struct reader {
    struct gb_cli *cli;
    struct gb_cli_config *config;
    unsigned line;
    bool open; /* others can read the file */
};

/* Every refusal begins with the file and the line. */
static int wrong(struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int wrong(struct reader *r, const char *format, ...) {
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return gb_cli_refused(r->cli, GB_CLI_USAGE, "%.512s:%u: %s", r->config->path, r->line, text);
}

static const char *kind_name(unsigned kind) {
    return kind == GROUP ? "group" : kind == HOST ? "host" : "the top";
}

/* --- sections ----------------------------------------------------------------------------------------------------- */

static int add_section(struct reader *r, unsigned kind, const char *name) {
    struct gb_cli_config *config = r->config;
    struct gb_cli_section *sections = realloc(config->sections, (config->count + 1) * sizeof *sections);
    char *copy = strdup(name);

    if (sections != NULL)
        config->sections = sections;
    if (sections == NULL || copy == NULL) {
        free(copy);
        return gb_cli_refused(r->cli, GB_CLI_FAILED, "out of memory");
    }
    sections[config->count++] = (struct gb_cli_section){.name = copy, .kind = kind, .line = r->line};
    return GB_CLI_DONE;
}

/* "[host NAME]" or "[group NAME]". */
static int take_section(struct reader *r, char *text) {
    size_t n = strlen(text);
    const struct gb_cli_section *same;
    char *name;
    unsigned kind;

    if (text[n - 1] != ']')
        return wrong(r, "a section is [host NAME] or [group NAME]");
    text[n - 1] = '\0';
    text = gb_conf_trim(text + 1);
    name = text + strcspn(text, " \t");
    kind = strncmp(text, "host", (size_t)(name - text)) == 0 && name - text == 4    ? HOST
           : strncmp(text, "group", (size_t)(name - text)) == 0 && name - text == 5 ? GROUP
                                                                                    : 0;
    name = gb_conf_trim(name);
    if (kind == 0 || name[0] == '\0')
        return wrong(r, "a section is [host NAME] or [group NAME]");
    if (strpbrk(name, " \t,@/") != NULL)
        return wrong(r, "\"%.64s\" is no name: it has no space and none of , @ /", name);
    same = gb_cli_config_find(r->config, kind, name);
    if (same != NULL)
        return wrong(r, "[%s %.64s] stands in line %u already", kind_name(kind), name, same->line);
    return add_section(r, kind, name);
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

static int unknown(struct reader *r, const char *name) {
    char hint[GB_NEAREST_HINT];
    struct gb_nearest nearest;
    size_t i;

    gb_nearest_begin(&nearest, name, strlen(name));
    for (i = 0; i < GB_CLI_CONFIG_IDS; i++)
        gb_nearest_try(&nearest, gb_cli_config_specs[i].name);
    return wrong(r, "there is no setting \"%.64s\"%s", name, gb_nearest_hint(&nearest, "", hint));
}

static int misplaced(struct reader *r, const struct gb_cli_config_spec *spec) {
    if (spec->what & GROUP)
        return wrong(r, "%s stands in a [group NAME]", spec->name);
    if (spec->what & HOST)
        return wrong(r, "%s stands before the sections or in a [host NAME]", spec->name);
    return wrong(r, "%s stands before the sections", spec->name);
}

/* "~/F", or F below the folder of the configuration; malloc'd. */
static char *whole_path(const struct reader *r, const char *path) {
    const char *home = getenv("HOME");
    const char *slash = strrchr(r->config->path, '/');
    int folder = slash != NULL ? (int)(slash - r->config->path) + 1 : 0;
    char *ret = NULL;

    if (strncmp(path, "~/", 2) == 0 && home != NULL)
        return asprintf(&ret, "%s%s", home, path + 1) >= 0 ? ret : NULL;
    if (path[0] == '/')
        return strdup(path);
    return asprintf(&ret, "%.*s%s", folder, r->config->path, path) >= 0 ? ret : NULL;
}

/* A URL with a scheme that no daemon has. */
static bool is_strange(const char *url) {
    return strstr(url, "://") != NULL && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0 &&
           strncmp(url, "unix://", 7) != 0;
}

/* The value as an option would take it. */
static int check_value(struct reader *r, const struct gb_cli_config_spec *spec, const char *value) {
    bool path = (spec->what & GB_CLI_CONFIG_PATH) != 0;
    struct gb_cli_options scratch;
    const char *wanted = NULL;
    const char *fault;
    bool flag;

    if (value[0] == '\0')
        return wrong(r, "%s has no value", spec->name);
    if (path && strncmp(value, "~/", 2) == 0)
        value += 2;
    fault = path ? gb_conf_path(value, strlen(value)) : gb_conf_quotes(value, strlen(value));
    if (fault != NULL)
        return wrong(r, "%s %s", spec->name, fault);
    if (spec == &gb_cli_config_specs[GB_CLI_CONFIG_URL] && strstr(value, "://") && strchr(value, '@'))
        return wrong(r, "%s has a user or a password before \"@\"; a token goes into token-file", spec->name);
    if (spec == &gb_cli_config_specs[GB_CLI_CONFIG_URL] && is_strange(value))
        return wrong(r, "url \"%.64s\" is no address of a daemon: http[s]://HOST:PORT or unix:///PATH", value);
    if (spec->option < 0)
        return GB_CLI_DONE;
    if (gb_cli_options_all[spec->option].type != GB_CLI_FLAG)
        wanted = gb_cli_option_set(&scratch, (enum gb_cli_option_id)spec->option, value);
    else if (gb_parse_bool(value, strlen(value), &flag) != GB_PARSE_OK)
        wanted = "true or false";
    return wanted == NULL ? GB_CLI_DONE : wrong(r, "%s \"%.64s\" is not %s", spec->name, value, wanted);
}

/* A secret that others have read is none. */
static int check_secret(struct reader *r, const struct gb_cli_config_spec *spec) {
    if (!(spec->what & GB_CLI_CONFIG_SECRET) || !r->open)
        return GB_CLI_DONE;
    return wrong(r, "other users can read the %s here: chmod 600 %.256s, or give a token-file", spec->name,
                 r->config->path);
}

static int take_setting(struct reader *r, char *text) {
    struct gb_cli_section *section = &r->config->sections[r->config->count - 1];
    const struct gb_cli_config_spec *spec;
    char *name;
    char *value;
    size_t id = 0;
    int rc;

    if (!gb_conf_split(text, &name, &value))
        return wrong(r, "this is not of the form name = value"); /* the line may be a secret */
    while (id < GB_CLI_CONFIG_IDS && strcmp(gb_cli_config_specs[id].name, name) != 0)
        id++;
    if (id == GB_CLI_CONFIG_IDS)
        return unknown(r, name);
    spec = &gb_cli_config_specs[id];
    if (!(spec->what & section->kind))
        return misplaced(r, spec);
    if (section->values[id] != NULL)
        return wrong(r, "%s stands in line %u already", name, section->lines[id]);
    rc = check_value(r, spec, value);
    if (rc == GB_CLI_DONE)
        rc = check_secret(r, spec);
    if (rc != GB_CLI_DONE)
        return rc;
    section->values[id] = spec->what & GB_CLI_CONFIG_PATH ? whole_path(r, value) : strdup(value);
    section->lines[id] = r->line;
    if (section->values[id] == NULL)
        return gb_cli_refused(r->cli, GB_CLI_FAILED, "out of memory");
    if (section->values[GB_CLI_CONFIG_TOKEN] != NULL && section->values[GB_CLI_CONFIG_TOKEN_FILE] != NULL)
        return wrong(r, "token and token-file: one of them");
    return GB_CLI_DONE;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static int read_lines(struct reader *r, FILE *file) {
    struct stat info;
    char *line = NULL;
    size_t size = 0;
    int rc = add_section(r, TOP, "");

    r->open = fstat(fileno(file), &info) < 0 || (info.st_mode & OPEN_MODES) != 0;
    while (rc == GB_CLI_DONE && getline(&line, &size, file) >= 0) {
        const char *mark = r->line == 0 ? gb_conf_mark(line) : NULL;
        char *text = gb_conf_trim(line);

        r->line++;
        if (mark != NULL)
            rc = wrong(r, "the file %s", mark);
        else if (text[0] != '\0')
            rc = text[0] == '[' ? take_section(r, text) : take_setting(r, text);
    }
    if (line != NULL)
        explicit_bzero(line, size);
    free(line);
    return rc;
}

/* A group without hosts, and a default host that is not there. */
static int check_whole(struct reader *r) {
    const struct gb_cli_section *top = &r->config->sections[0];
    const char *host = top->values[GB_CLI_CONFIG_DEFAULT_HOST];
    size_t i;

    for (i = 1; i < r->config->count; i++) {
        const struct gb_cli_section *section = &r->config->sections[i];

        r->line = section->line;
        if (section->kind == GROUP && section->values[GB_CLI_CONFIG_HOSTS] == NULL)
            return wrong(r, "the group %.64s has no line hosts = NAME, NAME", section->name);
    }
    r->line = top->lines[GB_CLI_CONFIG_DEFAULT_HOST];
    if (host != NULL && gb_cli_config_find(r->config, HOST, host) == NULL)
        return wrong(r, "there is no [host %.64s]", host);
    return GB_CLI_DONE;
}

/* malloc'd; NULL without a home, or with cli->error set. *ret_usual: it may be missing. */
static char *path_of(const struct gb_cli *cli, bool *ret_usual) {
    const char *given = cli->options.config != NULL ? cli->options.config : getenv("GPUBUF_CONFIG");
    const char *folder = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    char *path = NULL;

    *ret_usual = given == NULL || given[0] == '\0';
    if (!*ret_usual)
        return strcmp(given, "none") == 0 ? NULL : strdup(given);
    if (folder != NULL && folder[0] == '/')
        return asprintf(&path, "%s/" GB_CLI_CONFIG_FILE, folder) >= 0 ? path : NULL;
    if (home == NULL || home[0] != '/')
        return NULL;
    return asprintf(&path, "%s/.config/" GB_CLI_CONFIG_FILE, home) >= 0 ? path : NULL;
}

/* Whether there is no such file for this user. A folder that may not be searched is the home of another, as under sudo;
 * a file that is seen and cannot be read is the user's own mistake. */
static bool is_not_there(const char *path, int why) {
    struct stat info;

    return why == ENOENT || why == ENOTDIR || (why == EACCES && stat(path, &info) < 0 && errno == EACCES);
}

/* What a shell would have changed in a variable, and who set it did not. */
static int check_environment(struct gb_cli *cli) {
    static const struct {
        const char *name;
        bool path;
    } variables[] = {{"GPUBUF_CONFIG", true},   {"GPUBUF_CACERT", true},       {"GPUBUF_CERT", true},
                     {"GPUBUF_KEY", true},      {"GPUBUF_SOCKET", true},       {"GPUBUF_URL", false},
                     {"GPUBUF_HOST", false},    {"GPUBUF_FLEET", false},       {"GPUBUF_TOKEN", false},
                     {"GPUBUF_SESSION", false}, {"GPUBUF_SOURCE_TOKEN", false}};
    size_t i;

    for (i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i].name);
        size_t n = value != NULL ? strlen(value) : 0;
        const char *fault = variables[i].path ? gb_conf_path(value, n) : gb_conf_quotes(value, n);

        if (fault != NULL)
            return gb_cli_refused(cli, GB_CLI_USAGE, "%s %s", variables[i].name, fault);
    }
    return GB_CLI_DONE;
}

int gb_cli_config_read(struct gb_cli *cli, struct gb_cli_config *ret) {
    struct reader r = {.cli = cli, .config = ret};
    bool usual;
    FILE *file;
    int why;
    int rc;

    *ret = (struct gb_cli_config){.path = NULL};
    rc = check_environment(cli);
    if (rc != GB_CLI_DONE)
        return rc;
    ret->path = path_of(cli, &usual);
    file = ret->path != NULL ? fopen(ret->path, "re") : NULL;
    why = errno;
    if (file == NULL && ret->path != NULL && !(usual && is_not_there(ret->path, why)))
        return gb_cli_refused(cli, GB_CLI_USAGE, "the configuration file %s cannot be read: %s", ret->path,
                              strerror(why));
    if (file == NULL) {
        free(ret->path);
        ret->path = NULL;
        return add_section(&r, TOP, "");
    }
    rc = read_lines(&r, file);
    if (rc == GB_CLI_DONE && ferror(file))
        rc = gb_cli_refused(cli, GB_CLI_USAGE, "the configuration file %s cannot be read: %s", ret->path,
                            strerror(errno));
    fclose(file);
    return rc == GB_CLI_DONE ? check_whole(&r) : rc;
}

void gb_cli_config_done(struct gb_cli_config *config) {
    size_t i;
    size_t id;

    for (i = 0; i < config->count; i++) {
        for (id = 0; id < GB_CLI_CONFIG_IDS; id++)
            free(config->sections[i].values[id]);
        free(config->sections[i].name);
    }
    free(config->sections);
    free(config->path);
    *config = (struct gb_cli_config){0};
}

const struct gb_cli_section *gb_cli_config_find(const struct gb_cli_config *config, unsigned kind, const char *name) {
    size_t i;

    for (i = 0; i < config->count; i++)
        if (config->sections[i].kind == kind && strcmp(config->sections[i].name, name) == 0)
            return &config->sections[i];
    return NULL;
}

const struct gb_cli_section *gb_cli_config_named(struct gb_cli *cli, unsigned kind, const char *option,
                                                 const char *name) {
    const struct gb_cli_config *config = cli->config;
    const struct gb_cli_section *found = gb_cli_config_find(config, kind, name);
    char hint[GB_NEAREST_HINT];
    struct gb_nearest nearest;
    size_t i;

    if (found != NULL)
        return found;
    if (config->path == NULL) {
        gb_cli_refused(cli, GB_CLI_USAGE,
                       "%s %s: there is no configuration file; one with [%s %s] is to be ~/.config/" GB_CLI_CONFIG_FILE
                       " or what --config names",
                       option, name, kind_name(kind), name);
        return NULL;
    }
    if (kind == HOST && gb_cli_config_find(config, GROUP, name) != NULL) {
        gb_cli_refused(cli, GB_CLI_USAGE,
                       "%s has no [host %s], but a group of this name: --group %s runs the command on "
                       "each of its hosts",
                       config->path, name, name);
        return NULL;
    }
    if (kind == GROUP && gb_cli_config_find(config, HOST, name) != NULL) {
        gb_cli_refused(cli, GB_CLI_USAGE, "%s has no [group %s], but a host of this name: --host %s", config->path,
                       name, name);
        return NULL;
    }
    gb_nearest_begin(&nearest, name, strlen(name));
    for (i = 0; i < config->count; i++)
        if (config->sections[i].kind == kind)
            gb_nearest_try(&nearest, config->sections[i].name);
    gb_cli_refused(cli, GB_CLI_USAGE, "%s has no [%s %s]%s", config->path, kind_name(kind), name,
                   gb_nearest_hint(&nearest, "", hint));
    return NULL;
}
