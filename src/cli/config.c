/* The configuration file: read, shown, and which of option, environment and file a setting comes from. It is read
 * whole before a command runs; what is wrong in it ends the program with the line. A file with a token may be readable
 * by its owner alone. config.h lists the settings. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "cli/config.h"

#define OPEN_MODES 077 /* that let others at the file */
#define TOP GB_CLI_CONFIG_TOP
#define HOST GB_CLI_CONFIG_HOST
#define GROUP GB_CLI_CONFIG_GROUP
#define ACCESS GB_CLI_CONFIG_ACCESS
#define FILE_OF_IT (ACCESS | GB_CLI_CONFIG_PATH)
#define HIDDEN "(not shown)"
#define BUILT_IN "built in"

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
static int __attribute__((format(printf, 2, 3))) wrong(struct reader *reader, const char *format, ...) {
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return gb_cli_refused(reader->cli, GB_CLI_USAGE, "%.512s:%u: %s", reader->config->path, reader->line, text);
}

static const char *kind_name(unsigned kind) {
    return kind == GROUP ? "group" : kind == HOST ? "host" : "the top";
}

/* --- sections ----------------------------------------------------------------------------------------------------- */

static int begin_section(struct reader *reader, unsigned kind, const char *name) {
    struct gb_cli_config *config = reader->config;
    struct gb_cli_section *sections = realloc(config->sections, (config->count + 1) * sizeof(*sections));
    char *copy = strdup(name);

    if (sections)
        config->sections = sections;
    if (!sections || !copy) {
        free(copy);
        return gb_cli_refused(reader->cli, GB_CLI_FAILED, "out of memory");
    }
    sections[config->count++] = (struct gb_cli_section){.name = copy, .kind = kind, .line = reader->line};
    return GB_CLI_DONE;
}

/* "[host NAME]" or "[group NAME]". */
static int take_section(struct reader *reader, char *text) {
    size_t n = strlen(text);
    const struct gb_cli_section *same;
    char *name;
    unsigned kind;

    if (text[n - 1] != ']')
        return wrong(reader, "a section is [host NAME] or [group NAME]");
    text[n - 1] = '\0';
    text = gb_conf_trim(text + 1);
    name = text + strcspn(text, " \t");
    kind = strncmp(text, "host", (size_t)(name - text)) == 0 && name - text == 4    ? HOST
           : strncmp(text, "group", (size_t)(name - text)) == 0 && name - text == 5 ? GROUP
                                                                                    : 0;
    name = gb_conf_trim(name);
    if (kind == 0 || name[0] == '\0')
        return wrong(reader, "a section is [host NAME] or [group NAME]");
    if (strpbrk(name, " \t,@/"))
        return wrong(reader, "\"%.64s\" is no name: it has no space and none of , @ /", name);
    same = gb_cli_config_find(reader->config, kind, name);
    if (same)
        return wrong(reader, "[%s %.64s] stands in line %u already", kind_name(kind), name, same->line);
    return begin_section(reader, kind, name);
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

static int unknown(struct reader *reader, const char *name) {
    char hint[GB_NEAREST_HINT];
    struct gb_nearest nearest;
    size_t i;

    gb_nearest_begin(&nearest, name, strlen(name));
    for (i = 0; i < GB_CLI_CONFIG_IDS; i++)
        gb_nearest_try(&nearest, gb_cli_config_specs[i].name);
    return wrong(reader, "there is no setting \"%.64s\"%s", name, gb_nearest_hint(&nearest, "", hint));
}

static int misplaced(struct reader *reader, const struct gb_cli_config_spec *spec) {
    if (spec->what & GROUP)
        return wrong(reader, "%s stands in a [group NAME]", spec->name);
    if (spec->what & HOST)
        return wrong(reader, "%s stands before the sections or in a [host NAME]", spec->name);
    return wrong(reader, "%s stands before the sections", spec->name);
}

/* "~/F", or F below the folder of the configuration; malloc'd. */
static char *whole_path(const struct reader *reader, const char *path) {
    const char *home = getenv("HOME");
    const char *slash = strrchr(reader->config->path, '/');
    int folder = slash ? (int)(slash - reader->config->path) + 1 : 0;
    char *ret = NULL;

    if (strncmp(path, "~/", 2) == 0 && home)
        return asprintf(&ret, "%s%s", home, path + 1) >= 0 ? ret : NULL;
    if (path[0] == '/')
        return strdup(path);
    return asprintf(&ret, "%.*s%s", folder, reader->config->path, path) >= 0 ? ret : NULL;
}

/* A URL with a scheme that no daemon has. */
static bool is_strange(const char *url) {
    return strstr(url, "://") && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0 &&
           strncmp(url, "unix://", 7) != 0;
}

/* The value as an option would take it. */
static int check_value(struct reader *reader, const struct gb_cli_config_spec *spec, const char *value) {
    bool path = (spec->what & GB_CLI_CONFIG_PATH) != 0;
    struct gb_cli_options scratch;
    const char *wanted = NULL;
    const char *fault;
    bool flag;

    if (value[0] == '\0')
        return wrong(reader, "%s has no value", spec->name);
    if (path && strncmp(value, "~/", 2) == 0)
        value += 2;
    fault = path ? gb_conf_path(value, strlen(value)) : gb_conf_quotes(value, strlen(value));
    if (fault)
        return wrong(reader, "%s %s", spec->name, fault);
    if (spec == &gb_cli_config_specs[GB_CLI_CONFIG_URL] && strstr(value, "://") && strchr(value, '@'))
        return wrong(reader, "%s has a user or a password before \"@\"; a token goes into token-file", spec->name);
    if (spec == &gb_cli_config_specs[GB_CLI_CONFIG_URL] && is_strange(value))
        return wrong(reader, "url \"%.64s\" is no address of a daemon: http[s]://HOST:PORT or unix:///PATH", value);
    if (spec->option < 0)
        return GB_CLI_DONE;
    if (gb_cli_options_all[spec->option].type != GB_CLI_FLAG)
        wanted = gb_cli_option_set(&scratch, (enum gb_cli_option_id)spec->option, value);
    else if (gb_parse_bool(value, strlen(value), &flag) != GB_PARSE_OK)
        wanted = "true or false";
    return !wanted ? GB_CLI_DONE : wrong(reader, "%s \"%.64s\" is not %s", spec->name, value, wanted);
}

/* A secret that others have read is not secret. */
static int check_secret(struct reader *reader, const struct gb_cli_config_spec *spec) {
    if (!(spec->what & GB_CLI_CONFIG_SECRET) || !reader->open)
        return GB_CLI_DONE;
    return wrong(reader, "other users can read the %s here: chmod 600 %.256s, or give a token-file", spec->name,
                 reader->config->path);
}

static int take_setting(struct reader *reader, char *text) {
    struct gb_cli_section *section = &reader->config->sections[reader->config->count - 1];
    const struct gb_cli_config_spec *spec;
    char *name;
    char *value;
    size_t id = 0;
    int r;

    if (!gb_conf_split(text, &name, &value))
        return wrong(reader, "this is not of the form name = value"); /* the line may be a secret */
    while (id < GB_CLI_CONFIG_IDS && strcmp(gb_cli_config_specs[id].name, name) != 0)
        id++;
    if (id == GB_CLI_CONFIG_IDS)
        return unknown(reader, name);
    spec = &gb_cli_config_specs[id];
    if (!(spec->what & section->kind))
        return misplaced(reader, spec);
    if (section->values[id])
        return wrong(reader, "%s stands in line %u already", name, section->lines[id]);
    r = check_value(reader, spec, value);
    if (r == GB_CLI_DONE)
        r = check_secret(reader, spec);
    if (r != GB_CLI_DONE)
        return r;
    section->values[id] = spec->what & GB_CLI_CONFIG_PATH ? whole_path(reader, value) : strdup(value);
    section->lines[id] = reader->line;
    if (!section->values[id])
        return gb_cli_refused(reader->cli, GB_CLI_FAILED, "out of memory");
    if (section->values[GB_CLI_CONFIG_TOKEN] && section->values[GB_CLI_CONFIG_TOKEN_FILE])
        return wrong(reader, "token and token-file: one of them");
    return GB_CLI_DONE;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static int read_lines(struct reader *reader, FILE *file) {
    struct stat info;
    char *line = NULL;
    size_t size = 0;
    int r = begin_section(reader, TOP, "");

    reader->open = fstat(fileno(file), &info) < 0 || (info.st_mode & OPEN_MODES) != 0;
    while (r == GB_CLI_DONE && getline(&line, &size, file) >= 0) {
        const char *mark = reader->line == 0 ? gb_conf_mark(line) : NULL;
        char *text = gb_conf_trim(line);

        reader->line++;
        if (mark)
            r = wrong(reader, "the file %s", mark);
        else if (text[0] != '\0')
            r = text[0] == '[' ? take_section(reader, text) : take_setting(reader, text);
    }
    if (line)
        explicit_bzero(line, size);
    free(line);
    return r;
}

/* A group without hosts, and a default host that is not there. */
static int check_whole(struct reader *reader) {
    const struct gb_cli_section *top = &reader->config->sections[0];
    const char *host = top->values[GB_CLI_CONFIG_DEFAULT_HOST];
    size_t i;

    for (i = 1; i < reader->config->count; i++) {
        const struct gb_cli_section *section = &reader->config->sections[i];

        reader->line = section->line;
        if (section->kind == GROUP && !section->values[GB_CLI_CONFIG_HOSTS])
            return wrong(reader, "the group %.64s has no line hosts = NAME, NAME", section->name);
    }
    reader->line = top->lines[GB_CLI_CONFIG_DEFAULT_HOST];
    if (host && !gb_cli_config_find(reader->config, HOST, host))
        return wrong(reader, "there is no [host %.64s]", host);
    return GB_CLI_DONE;
}

/* malloc'd; NULL without a home, or with cli->error set. *ret_usual: it may be missing. */
static char *path_of(const struct gb_cli *cli, bool *ret_usual) {
    const char *given = cli->options.config ? cli->options.config : getenv("GPUBUF_CONFIG");
    const char *folder = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    char *path = NULL;

    *ret_usual = !given || given[0] == '\0';
    if (!*ret_usual)
        return strcmp(given, "none") == 0 ? NULL : strdup(given);
    if (folder && folder[0] == '/')
        return asprintf(&path, "%s/" GB_CLI_CONFIG_FILE, folder) >= 0 ? path : NULL;
    if (!home || home[0] != '/')
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

    for (i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *value = getenv(variables[i].name);
        size_t n = value ? strlen(value) : 0;
        const char *fault = variables[i].path ? gb_conf_path(value, n) : gb_conf_quotes(value, n);

        if (fault)
            return gb_cli_refused(cli, GB_CLI_USAGE, "%s %s", variables[i].name, fault);
    }
    return GB_CLI_DONE;
}

int gb_cli_config_read(struct gb_cli *cli, struct gb_cli_config *ret) {
    struct reader reader = {.cli = cli, .config = ret};
    bool usual;
    FILE *file;
    int why;
    int r;

    *ret = (struct gb_cli_config){.path = NULL};
    r = check_environment(cli);
    if (r != GB_CLI_DONE)
        return r;
    ret->path = path_of(cli, &usual);
    file = ret->path ? fopen(ret->path, "re") : NULL;
    why = errno;
    if (!file && ret->path && !(usual && is_not_there(ret->path, why)))
        return gb_cli_refused(cli, GB_CLI_USAGE, "the configuration file %s cannot be read: %s", ret->path,
                              strerror(why));
    if (!file) {
        free(ret->path);
        ret->path = NULL;
        return begin_section(&reader, TOP, "");
    }
    r = read_lines(&reader, file);
    if (r == GB_CLI_DONE && ferror(file))
        r = gb_cli_refused(cli, GB_CLI_USAGE, "the configuration file %s cannot be read: %s", ret->path,
                           strerror(errno));
    fclose(file);
    return r == GB_CLI_DONE ? check_whole(&reader) : r;
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

    if (found)
        return found;
    if (!config->path) {
        gb_cli_refused(cli, GB_CLI_USAGE,
                       "%s %s: there is no configuration file; one with [%s %s] is to be ~/.config/" GB_CLI_CONFIG_FILE
                       " or what --config names",
                       option, name, kind_name(kind), name);
        return NULL;
    }
    if (kind == HOST && gb_cli_config_find(config, GROUP, name)) {
        gb_cli_refused(cli, GB_CLI_USAGE,
                       "%s has no [host %s], but a group of this name: --group %s runs the command on "
                       "each of its hosts",
                       config->path, name, name);
        return NULL;
    }
    if (kind == GROUP && gb_cli_config_find(config, HOST, name)) {
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

/* --- settings: an option, the environment, the file --------------------------------------------------------------- */

static const char *environment(const char *name) {
    const char *value = name ? getenv(name) : NULL;

    return value && value[0] != '\0' ? value : NULL;
}

int gb_cli_config_scope(struct gb_cli *cli, struct gb_cli_config_scope *ret) {
    const struct gb_cli_options *o = &cli->options;
    const char *variable = environment("GPUBUF_HOST");
    const char *usual = cli->config->sections[0].values[GB_CLI_CONFIG_DEFAULT_HOST];
    bool given = o->url || o->socket;
    const char *name = o->host ? o->host : given ? NULL : variable;

    *ret = (struct gb_cli_config_scope){.elsewhere = given};
    if (o->host && o->url)
        return gb_cli_refused(cli, GB_CLI_USAGE, "--host and --url both say which daemon: give one of them");
    if (name) {
        ret->named = true;
        ret->elsewhere = false;
        ret->host = gb_cli_config_named(cli, GB_CLI_CONFIG_HOST, o->host ? "--host" : "GPUBUF_HOST", name);
        return ret->host ? GB_CLI_DONE : GB_CLI_USAGE;
    }
    ret->elsewhere = given || environment("GPUBUF_URL") || environment("GPUBUF_SOCKET") || environment("GPUBUF_FLEET");
    if (!ret->elsewhere && usual)
        ret->host = gb_cli_config_find(cli->config, GB_CLI_CONFIG_HOST, usual);
    return GB_CLI_DONE;
}

/* A token and the file of one are the same setting. */
static bool says(const struct gb_cli_section *section, enum gb_cli_config_id id) {
    if (id == GB_CLI_CONFIG_TOKEN || id == GB_CLI_CONFIG_TOKEN_FILE)
        return section->values[GB_CLI_CONFIG_TOKEN] || section->values[GB_CLI_CONFIG_TOKEN_FILE];
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
    bool own = scope->host && says(scope->host, id);
    const struct gb_cli_section *section = own ? scope->host : top;
    const char *variable = environment(spec->environment);

    if (option_given(&cli->options, id))
        return (struct gb_cli_config_value){.from = GB_CLI_FROM_OPTION};
    if (id == GB_CLI_CONFIG_URL && scope->host && !own) /* the name is the address */
        return (struct gb_cli_config_value){GB_CLI_FROM_FILE, scope->host->name, scope->host->line};
    if (variable && !(own && scope->named))
        return (struct gb_cli_config_value){.from = GB_CLI_FROM_ENVIRONMENT, .text = variable};
    if (!section->values[id] || (scope->elsewhere && (spec->what & GB_CLI_CONFIG_ACCESS)))
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

/* --- config: the settings that are in force ----------------------------------------------------------------------- */

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

/* A line of the table. A token of the environment is not from token-file. */
static void add_setting(const struct gb_cli *cli, json_t *items, const struct gb_cli_config_scope *scope,
                        enum gb_cli_config_id id) {
    const struct gb_cli_config_spec *spec = &gb_cli_config_specs[id];
    struct gb_cli_config_value value = gb_cli_config_value(cli, scope, id);
    char *text = NULL;
    char from[GB_CLI_PATH];

    if (value.from == GB_CLI_FROM_NOWHERE)
        value.text = built_in[id];
    if ((value.from == GB_CLI_FROM_NOWHERE && !value.text) ||
        (id == GB_CLI_CONFIG_TOKEN && value.from == GB_CLI_FROM_OPTION) ||
        (id == GB_CLI_CONFIG_TOKEN_FILE && value.from == GB_CLI_FROM_ENVIRONMENT))
        return;
    from_text(cli, id, &value, from, sizeof(from));
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

static void show_section(const struct gb_cli_section *section, json_t *hosts, json_t *groups) {
    const char *url = section->values[GB_CLI_CONFIG_URL];

    if (section->kind == GB_CLI_CONFIG_HOST)
        json_array_append_new(hosts, json_pack("{s:s, s:s}", "host", section->name, "url", url ? url : section->name));
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
    gb_cli_put(stdout, cli->config->path ? cli->config->path : "none");
    printf("\n\n");
    gb_cli_table(stdout, settings, sizeof(settings) / sizeof(settings[0]), json_object_get(all, "settings"));
    if (json_array_size(json_object_get(all, "hosts")) > 0) {
        printf("\n");
        gb_cli_table(stdout, hosts, sizeof(hosts) / sizeof(hosts[0]), json_object_get(all, "hosts"));
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
    int r = gb_cli_config_scope(cli, &scope);
    json_t *hosts;
    json_t *groups;
    json_t *all;
    size_t i;

    (void)argc;
    (void)argv;
    if (r != GB_CLI_DONE)
        return r;
    hosts = json_array();
    groups = json_array();
    for (i = 1; i < cli->config->count; i++)
        show_section(&cli->config->sections[i], hosts, groups);
    all = json_pack("{s:s?, s:s?, s:o, s:o, s:o}", "file", cli->config->path, "host",
                    scope.host ? scope.host->name : NULL, "settings", settings_of(cli, &scope), "hosts", hosts,
                    "groups", groups);
    if (cli->options.json)
        gb_cli_json(stdout, all);
    else
        put(cli, all);
    json_decref(all);
    return gb_cli_flush(cli, GB_CLI_DONE);
}
