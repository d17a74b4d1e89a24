/* Tokens of a file, as lines or as JSON. A file counts as a whole or not at all, and no text of a secret is kept or
 * shown. */
#include "daemon/tokens_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/hash.h"
#include "base/text.h"
#include "model/token.h"

/* --- found by what one token alone may have ----------------------------------------------------------------------- */

int gb_token_array_reserve(struct gb_token_array *array, size_t capacity, struct gb_error *err) {
    struct gb_token_rec *items;

    if (capacity <= array->capacity)
        return 0;
    items = realloc(array->items, capacity * sizeof(*items));
    if (!items)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory while reading tokens");
    array->items = items;
    array->capacity = capacity;
    return 0;
}

int gb_token_array_add(struct gb_token_array *array, const struct gb_token_rec *rec, struct gb_error *err) {
    size_t more = array->capacity > 0 ? 2 * array->capacity : 16;

    if (array->count == array->capacity && gb_token_array_reserve(array, more, err) != 0)
        return -1;
    array->items[array->count++] = *rec;
    return 0;
}

/* --- the index ---------------------------------------------------------------------------------------------------- */

static int put(struct gb_map *map, const char *key, struct gb_token_rec *rec, struct gb_error *err) {
    if (key[0] == '\0' || gb_map_put(map, key, rec) == 0)
        return 0;
    return gb_error_set(err, GB_ERR_INTERNAL, "out of memory while reading tokens");
}

static int tokens_index_add(struct gb_tokens_index *index, struct gb_token_rec *rec, struct gb_error *err) {
    if (put(&index->names, rec->name.s, rec, err) != 0 || put(&index->secrets, rec->sha256_hex, rec, err) != 0 ||
        put(&index->secrets, rec->old_sha256_hex, rec, err) != 0)
        return -1;
    return put(&index->subjects, rec->subject, rec, err);
}

int gb_tokens_index_add_all(struct gb_tokens_index *index, const struct gb_token_array *array, struct gb_error *err) {
    size_t i;

    for (i = 0; i < array->count; i++) {
        if (tokens_index_add(index, &array->items[i], err) != 0)
            return -1;
    }
    return 0;
}

/* No token is known by "". */
const struct gb_token_rec *gb_tokens_index_find(const struct gb_tokens_index *index, const struct gb_token_rec *rec,
                                                const char **ret_same) {
    const struct gb_token_rec *found = gb_map_get(&index->names, rec->name.s);

    if (found) {
        *ret_same = "name";
        return found;
    }
    found = gb_map_get(&index->secrets, rec->sha256_hex);
    if (!found)
        found = gb_map_get(&index->secrets, rec->old_sha256_hex);
    if (found) {
        *ret_same = "secret";
        return found;
    }
    found = gb_map_get(&index->subjects, rec->subject);
    if (found)
        *ret_same = "subject";
    return found;
}

const struct gb_token_rec *gb_tokens_index_named(const struct gb_tokens_index *index, const char *name) {
    return gb_map_get(&index->names, name);
}

void gb_tokens_index_done(struct gb_tokens_index *index) {
    gb_map_done(&index->names);
    gb_map_done(&index->secrets);
    gb_map_done(&index->subjects);
}

enum key {
    GB_TOKEN_NAME,
    GB_TOKEN_SECRET,
    GB_TOKEN_HASH,
    GB_TOKEN_SCOPE,
    GB_TOKEN_SESSION,
    GB_TOKEN_PREFIX,
    GB_TOKEN_EXPIRES,
    GB_TOKEN_SUBJECT,
    GB_TOKEN_KEYS
};
/* The text of each key, NULL where it is not given; borrowed. */
struct entry {
    const char *value[GB_TOKEN_KEYS];
};

/* Called for each object with the line at which it begins. */
typedef int entry_fn(void *arg, unsigned line, const struct entry *entry, struct gb_error *err);

#define MODE_MAX 0640
#define BYTES_MAX (4u << 20)
/* Between two looks half a second apart, of which a clock may say a little less. */
#define SETTLED_NS (450 * GB_NS_PER_MS)

int gb_token_secret_check(const char *secret, struct gb_error *err) {
    if (strlen(secret) >= GB_TOKEN_SECRET_LEAST && secret[strcspn(secret, " \t\r\n")] == '\0')
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a secret has at least %d bytes, and no blank",
                        GB_TOKEN_SECRET_LEAST);
}

static const char *const keys[GB_TOKEN_KEYS] = {"name",    "secret", "hash",    "scope",
                                                "session", "prefix", "expires", "subject"};

/* The tokens while they are read. */
struct reading {
    struct gb_token_array array;
    struct gb_tokens_index index; /* of the array */
    unsigned *lines;              /* of each */
    int64_t modified_us;
};

/* --- one token ---------------------------------------------------------------------------------------------------- */

/* Returns the key, or -1 with INVALID_ARGUMENT. The text of the key is repeated only if it cannot be a secret. */
static int find_key(const char *text, size_t len, struct gb_error *err) {
    size_t i;

    for (i = 0; i < GB_TOKEN_KEYS; i++) {
        if (strlen(keys[i]) == len && memcmp(keys[i], text, len) == 0)
            return (int)i;
    }
    /* Secrets are longer. */
    if (len > 0 && len < GB_TOKEN_SECRET_LEAST && strspn(text, "abcdefghijklmnopqrstuvwxyz_-") >= len)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "there is no key \"%.*s\"; permitted: name, secret, hash, scope, session, prefix, expires, "
                            "subject",
                            (int)len, text);
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                        "permitted keys: name, secret, hash, scope, session, prefix, expires, subject");
}

static int read_secret(const struct entry *e, struct gb_token_rec *rec, struct gb_error *err) {
    const char *secret = e->value[GB_TOKEN_SECRET];
    const char *hash = e->value[GB_TOKEN_HASH];

    if (secret && hash)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give secret or hash, not both");
    if (!secret && !hash && !e->value[GB_TOKEN_SUBJECT])
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "give secret, hash or subject: nothing else opens a token");
    if (secret && gb_token_secret_check(secret, err) != 0)
        return -1;
    if (secret)
        return gb_sha256_hex(secret, strlen(secret), rec->sha256_hex, err);
    if (!hash)
        return 0;
    if (!gb_hex_lower(hash, 64))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "hash must be the SHA-256 of the secret: 64 lower-case hexadecimal digits");
    memcpy(rec->sha256_hex, hash, 65);
    return 0;
}

static int read_expiry(const char *text, int64_t *ret_us, struct gb_error *err) {
    if (text && gb_timestamp_parse(text, strlen(text), ret_us) != GB_TIMESTAMP_OK)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "expires must be a time such as 2030-01-02T03:04:05Z");
    /* Among tokens, 0 stands for one that never expires. */
    if (text && *ret_us <= 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "expires must be a time after 1970-01-01T00:00:00Z");
    return 0;
}

int gb_token_read_name(const char *what, const char *text, char *ret, struct gb_error *err) {
    struct gb_name name;

    if (!text)
        return 0;
    if (gb_name_parse(what, text, strlen(text), &name, err) != 0)
        return -1;
    memcpy(ret, name.s, sizeof(name.s));
    return 0;
}

/* Below 0, where no token of the database is; the same whenever the name is. */
static int make_id(const struct gb_name *name, int64_t *ret, struct gb_error *err) {
    char hex[GB_SHA256_HEX_SIZE];

    if (gb_sha256_hex(name->s, strlen(name->s), hex, err) != 0)
        return -1;
    hex[15] = '\0';
    *ret = -1 - (int64_t)strtoull(hex, NULL, 16);
    return 0;
}

/* A word that is no scope is not repeated: it may be a secret that stands in the wrong place. */
static int read_scopes(const char *text, unsigned *ret, struct gb_error *err) {
    if (text && gb_scopes_parse(text, strlen(text), ret, NULL) != 0)
        return gb_error_set(
            err, GB_ERR_INVALID_ARGUMENT,
            "scope must be verify, read, write, map, map-write, admin or fleet, or several between commas");
    return 0;
}

/* Nor is the subject. */
static int read_subject(const char *text, char ret[GB_SUBJECT_SIZE], struct gb_error *err) {
    const char *flaw = gb_subject_flaw(text);

    if (gb_subject_parse(text, strlen(text), ret, NULL) == 0)
        return 0;
    return gb_error_set(
        err, GB_ERR_INVALID_ARGUMENT,
        "no certificate can have this subject: %s; \"gpubufd tls show FILE\" prints that of a certificate",
        flaw ? flaw : "it is too long, or has a control character");
}

static int read_entry(const struct entry *e, struct gb_token_rec *rec, struct gb_error *err) {
    const char *name = e->value[GB_TOKEN_NAME];
    const char *subject = e->value[GB_TOKEN_SUBJECT];

    if (!name)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the token has no name");
    if (gb_name_parse("token name", name, strlen(name), &rec->name, err) != 0 ||
        make_id(&rec->name, &rec->id, err) != 0 || read_secret(e, rec, err) != 0)
        return -1;
    if (read_scopes(e->value[GB_TOKEN_SCOPE], &rec->scopes, err) != 0)
        return -1;
    if (subject && read_subject(subject, rec->subject, err) != 0)
        return -1;
    if (gb_token_read_name("session name", e->value[GB_TOKEN_SESSION], rec->session, err) != 0 ||
        gb_token_read_name("prefix", e->value[GB_TOKEN_PREFIX], rec->prefix, err) != 0)
        return -1;
    return read_expiry(e->value[GB_TOKEN_EXPIRES], &rec->expires_at_us, err);
}

/* --- objects of JSON ---------------------------------------------------------------------------------------------- */

struct scan {
    const char *at;
    size_t left;
    unsigned line;
    bool listed; /* within [ ] */
};

static void skip(struct scan *s, size_t n) {
    for (; n > 0; n--, s->at++, s->left--)
        s->line += *s->at == '\n';
}

static void skip_blanks(struct scan *s) {
    while (s->left > 0 && strchr(" \t\r\n", *s->at) && *s->at != '\0')
        skip(s, 1);
}

static int read_object(json_t *object, struct entry *ret, struct gb_error *err) {
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value) {
        int key = find_key(name, strlen(name), err);

        if (key < 0)
            return -1;
        if (json_is_null(value))
            continue;
        if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s must be a string", name);
        ret->value[key] = json_string_value(value);
    }
    return 0;
}

static int take_object(struct scan *s, entry_fn *visit, void *arg, struct gb_error *err) {
    struct entry entry = {{NULL}};
    json_error_t why; /* its text repeats what it did not understand, which may be a secret */
    json_t *object = json_loadb(s->at, s->left, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &why);
    int r;

    if (!object) {
        s->line += why.line > 0 ? (unsigned)why.line - 1 : 0;
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "this is not JSON, or an object has a key twice");
    }
    r = read_object(object, &entry, err);
    if (r == 0)
        r = visit(arg, s->line, &entry, err);
    json_decref(object);
    if (r == 0)
        skip(s, (size_t)why.position);
    return r;
}

/* 1: an object follows; 0: the end; -1. */
static int next(struct scan *s, bool first, struct gb_error *err) {
    skip_blanks(s);
    if (first && s->left > 0 && *s->at == '[') {
        s->listed = true;
        skip(s, 1);
        skip_blanks(s);
    } else if (!first && s->listed && s->left > 0 && *s->at == ',') {
        skip(s, 1);
        skip_blanks(s);
        if (s->left > 0 && *s->at == ']')
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "an object must follow the comma");
    } else if (!first && s->listed && s->left > 0 && *s->at == '{') {
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a comma must stand before this object");
    }
    if (s->listed && s->left > 0 && *s->at == ']') {
        skip(s, 1);
        skip_blanks(s);
        s->listed = false;
        return s->left == 0 ? 0 : gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "nothing may follow the list");
    }
    if (s->left == 0)
        return s->listed ? gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the list has no end") : 0;
    return *s->at == '{' ? 1 : gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a token must be an object");
}

/* *ret_line: of the failure. */
static int read_json(const char *text, size_t len, entry_fn *visit, void *arg, unsigned *ret_line,
                     struct gb_error *err) {
    struct scan s = {.at = text, .left = len, .line = 1};
    bool first = true;
    int r;

    while ((r = next(&s, first, err)) > 0 && (r = take_object(&s, visit, arg, err)) == 0)
        first = false;
    *ret_line = s.line;
    return r;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

static int check_alone(const struct reading *r, const struct gb_token_rec *rec, struct gb_error *err) {
    const char *same;
    const struct gb_token_rec *other = gb_tokens_index_find(&r->index, rec, &same);

    if (!other)
        return 0;
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "line %u has a token of the same %s",
                        r->lines[other - r->array.items], same);
}

/* Room for one more. The tokens move, so that the index is made again. */
static int make_room(struct reading *r, struct gb_error *err) {
    size_t capacity = r->array.capacity > 0 ? 2 * r->array.capacity : 16;
    unsigned *lines;

    if (r->array.count < r->array.capacity)
        return 0;
    lines = realloc(r->lines, capacity * sizeof(*lines));
    if (!lines)
        return gb_error_set(err, GB_ERR_INTERNAL, "out of memory");
    r->lines = lines;
    gb_tokens_index_done(&r->index);
    if (gb_token_array_reserve(&r->array, capacity, err) != 0)
        return -1;
    return gb_tokens_index_add_all(&r->index, &r->array, err);
}

static int take(void *arg, unsigned line, const struct entry *entry, struct gb_error *err) {
    struct reading *r = arg;
    struct gb_token_rec rec = {.scopes = 1u << GB_SCOPE_READ, .created_at_us = r->modified_us};

    if (r->array.count == GB_TOKENS_FILE_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "this token is one more than the %d that a file may have",
                            GB_TOKENS_FILE_MAX);
    if (read_entry(entry, &rec, err) != 0 || check_alone(r, &rec, err) != 0 || make_room(r, err) != 0)
        return -1;
    r->lines[r->array.count] = line;
    if (gb_token_array_add(&r->array, &rec, err) != 0)
        return -1;
    return tokens_index_add(&r->index, &r->array.items[r->array.count - 1], err);
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static bool blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

/* A quoted text, in place: \" and \\ stand for the two. *at is behind the first quote, then behind the last. */
static int unquote(char **at, struct gb_error *err) {
    char *to = *at;
    char *from = *at;

    for (; *from != '\0' && *from != '"'; from++) {
        if (*from == '\\' && (from[1] == '"' || from[1] == '\\'))
            from++;
        *to++ = *from;
    }
    if (*from == '\0' || (from[1] != '\0' && !blank(from[1])))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a quotation does not end, or a word goes on behind it");
    *to = '\0';
    *at = from + 1;
    return 0;
}

/* One word of a line; *at moves behind it. */
static int read_word(char **at, struct entry *ret, unsigned number, struct gb_error *err) {
    char *word = *at;
    size_t len = strcspn(word, "= \t\r");
    int key;

    if (word[len] != '=')
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "word %u is not of the form key=value", number);
    key = find_key(word, len, err);
    if (key < 0)
        return -1;
    if (ret->value[key])
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%s is given twice", keys[key]);
    *at = word + len + 1;
    if (**at == '"') {
        ret->value[key] = ++*at;
        return unquote(at, err);
    }
    ret->value[key] = *at;
    *at += strcspn(*at, " \t\r");
    if (**at != '\0')
        *(*at)++ = '\0';
    return 0;
}

static int read_line(char *line, unsigned number, struct reading *r, struct gb_error *err) {
    struct entry entry = {{NULL}};
    unsigned words = 0;

    for (;;) {
        while (blank(*line))
            line++;
        if (*line == '\0' || *line == '#')
            return words == 0 ? 0 : take(r, number, &entry, err);
        if (read_word(&line, &entry, ++words, err) != 0)
            return -1;
    }
}

static int read_lines(char *text, struct reading *r, unsigned *ret_line, struct gb_error *err) {
    unsigned line = 0;
    char *next;

    for (; text; text = next) {
        *ret_line = ++line;
        next = strchr(text, '\n');
        if (next)
            *next++ = '\0';
        if (read_line(text, line, r, err) != 0)
            return -1;
    }
    return 0;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static bool same_time(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static void take_look(const struct stat *st, struct gb_tokens_look *ret) {
    *ret = (struct gb_tokens_look){.there = true,
                                   .device = st->st_dev,
                                   .inode = st->st_ino,
                                   .size = st->st_size,
                                   .modified = st->st_mtim,
                                   .changed = st->st_ctim};
}

static bool same_look(const struct gb_tokens_look *a, const struct gb_tokens_look *b) {
    if (!a->there || !b->there)
        return a->there == b->there;
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           same_time(&a->modified, &b->modified) && same_time(&a->changed, &b->changed);
}

bool gb_tokens_file_changed(struct gb_tokens_file *file, const char *path, uint64_t now_ns) {
    struct gb_tokens_look look = {.there = false};
    struct stat st;

    if (stat(path, &st) == 0)
        take_look(&st, &look);
    if (!same_look(&look, &file->seen)) {
        file->seen = look;
        file->seen_ns = now_ns;
    }
    return !same_look(&look, &file->opened) && now_ns - file->seen_ns >= SETTLED_NS;
}

static int check_file(const struct stat *st, const char *path, struct gb_error *err) {
    if (!S_ISREG(st->st_mode))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s is no regular file", path);
    if ((st->st_mode & 07777 & ~MODE_MAX) != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "%.200s has mode %04o, and others could read or change the tokens in it: chmod 0640 it, or "
                            "less",
                            path, (unsigned)st->st_mode & 07777);
    if (st->st_size > BYTES_MAX)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s has %lld bytes, more than the %u that are read", path,
                            (long long)st->st_size, BYTES_MAX);
    return 0;
}

/* The text with a NUL behind it, malloc'd. *ret_n: its bytes. */
static char *read_text(int fd, size_t size, size_t *ret_n) {
    char *text = malloc(size + 1);
    size_t n = 0;
    ssize_t got = 1;

    while (text && n < size && got > 0) {
        got = read(fd, text + n, size - n);
        n += got > 0 ? (size_t)got : 0;
    }
    if (!text || got < 0) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    *ret_n = n;
    return text;
}

static int parse(char *text, size_t n, struct reading *r, const char *path, struct gb_error *err) {
    struct gb_error why = GB_ERROR_INIT;
    char first = text[strspn(text, " \t\r\n")];
    unsigned line = 0;
    int result;

    if (gb_conf_mark(text))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s %s", path, gb_conf_mark(text));
    if (strlen(text) != n)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s is no text", path);
    if (first == '[' || first == '{')
        result = read_json(text, n, take, r, &line, &why);
    else
        result = read_lines(text, r, &line, &why);
    if (result != 0)
        gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s:%u: %s", path, line, why.detail);
    return result;
}

static int read_open(struct gb_tokens_file *file, int fd, const char *path, struct gb_error *err) {
    struct reading r = {.lines = NULL};
    struct stat st;
    char *text;
    size_t n = 0;
    int result;

    if (fstat(fd, &st) != 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s cannot be read: %s", path, strerror(errno));
    take_look(&st, &file->opened);
    if (check_file(&st, path, err) != 0)
        return -1;
    text = read_text(fd, (size_t)st.st_size, &n);
    if (!text)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s cannot be read", path);
    r.modified_us = (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
    result = parse(text, n, &r, path, err);
    explicit_bzero(text, n);
    free(text);
    if (result != 0) {
        gb_tokens_index_done(&r.index);
        free(r.array.items);
        free(r.lines);
        return -1;
    }
    gb_tokens_index_done(&file->index);
    free(file->recs);
    free(file->lines);
    file->recs = r.array.items;
    file->lines = r.lines;
    file->count = r.array.count;
    file->index = r.index;
    return 0;
}

int gb_tokens_file_read(struct gb_tokens_file *file, const char *path, struct gb_error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int r;

    file->opened = (struct gb_tokens_look){.there = false};
    if (fd < 0)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "%.200s cannot be opened: %s", path, strerror(errno));
    r = read_open(file, fd, path, err);
    close(fd);
    return r;
}

unsigned gb_tokens_file_line(const struct gb_tokens_file *file, const struct gb_token_rec *rec) {
    return file->lines[rec - file->recs];
}

void gb_tokens_file_done(struct gb_tokens_file *file) {
    gb_tokens_index_done(&file->index);
    free(file->recs);
    free(file->lines);
    *file = (struct gb_tokens_file){.recs = NULL};
}
