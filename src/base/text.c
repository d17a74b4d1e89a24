/* Text: shared text, names, numbers with units, escapes, the nearest name to a mistyped word, rules of the fault
 * options, and lines of a configuration file and of a help. Functions work on their arguments alone and allocate only
 * what they return. All folders call it. */
#include "base/text.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"

/* --- text --------------------------------------------------------------------------------------------------------- */

struct gb_text {
    atomic_uint refs;
    char s[];
};

struct gb_text *gb_text_new(const char *text, size_t len) {
    struct gb_text *t = malloc(sizeof(*t) + len + 1);

    if (!t)
        return NULL;
    atomic_init(&t->refs, 1);
    memcpy(t->s, text, len);
    t->s[len] = '\0';
    return t;
}

struct gb_text *gb_text_ref(struct gb_text *text) {
    if (text)
        atomic_fetch_add(&text->refs, 1);
    return text;
}

void gb_text_unref(struct gb_text *text) {
    if (text && atomic_fetch_sub(&text->refs, 1) == 1)
        free(text);
}

void gb_text_set(struct gb_text **at, struct gb_text *text) {
    struct gb_text *old = *at;

    *at = gb_text_ref(text);
    gb_text_unref(old);
}

const char *gb_text_s(const struct gb_text *text) {
    return text ? text->s : "";
}

/* --- escape ------------------------------------------------------------------------------------------------------- */

size_t gb_utf8_len(const char *s) {
    const unsigned char *at = (const unsigned char *)s;
    size_t n = at[0] < 0x80 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    uint32_t code = at[0] & (0x7fu >> n);
    size_t i;

    if (n == 1)
        return 1;
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    for (i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    if ((n == 3 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
        (n == 4 && (code < 0x10000 || code > 0x10ffff)))
        return 0;
    return n;
}

static bool is_control(const unsigned char *at) {
    return at[0] < 0x20 || at[0] == 0x7f || (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0);
}

size_t gb_escape(char *out, size_t size, const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    size_t used = 0;

    while (*at) {
        size_t n = gb_utf8_len((const char *)at);
        bool raw = n > 0 && !is_control(at);
        size_t i;

        n = n > 0 ? n : 1;
        if (used + (raw ? n : 4 * n) >= size)
            break;
        for (i = 0; i < n; i++) {
            if (raw) {
                out[used++] = (char)at[i];
                continue;
            }
            out[used++] = '\\';
            out[used++] = 'x';
            gb_digits_hex(out + used, at[i], 2);
            used += 2;
        }
        at += n;
    }
    out[used] = '\0';
    return used;
}

/* --- name --------------------------------------------------------------------------------------------------------- */

static bool is_alnum(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

int gb_name_parse(const char *what, const char *text, size_t len, struct gb_name *ret_name, struct gb_error *err) {
    size_t i;

    if (len == 0)
        return gb_error_set(err, GB_ERR_INVALID_NAME, "the %s is empty; it needs 1 to %d characters", what,
                            GB_NAME_MAX);
    if (len > GB_NAME_MAX)
        return gb_error_set(err, GB_ERR_INVALID_NAME, "the %s has %zu characters; at most %d are permitted", what, len,
                            GB_NAME_MAX);
    for (i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if (is_alnum((char)c) || (i > 0 && (c == '.' || c == '_' || c == '-')))
            continue;
        return gb_error_set(err, GB_ERR_INVALID_NAME,
                            "the %s has the byte 0x%02x at position %zu; permitted are letters, digits and, after the "
                            "first character, '.', '_' and '-'",
                            what, c, i + 1);
    }
    memcpy(ret_name->s, text, len);
    ret_name->s[len] = '\0';
    return 0;
}

bool gb_name_equal(const struct gb_name *a, const struct gb_name *b) {
    return strcmp(a->s, b->s) == 0;
}

/* --- nearest ------------------------------------------------------------------------------------------------------ */

#define FAR 3   /* with that many changes two words are not near */
#define SHORT 6 /* letters; of shorter words two changes make another word: sort, cert */

static int least(int a, int b) {
    return a < b ? a : b;
}

void gb_nearest_begin(struct gb_nearest *nearest, const char *word, size_t length) {
    nearest->word = word;
    nearest->length = length > GB_NEAREST_MAX ? 0 : (int)length;
    nearest->name = NULL;
    /* Every word of two letters is two changes from every other. */
    nearest->changes = least(nearest->length < SHORT ? 2 : FAR, nearest->length);
}

/* The optimal string alignment of a[0..m) and b, from three rows of its table. */
static int distance(const char *a, int m, const char *b) {
    int rows[3][GB_NEAREST_MAX + 1];
    int n = (int)strlen(b);
    int i;
    int j;

    for (j = 0; j <= n; j++)
        rows[0][j] = j;
    for (i = 1; i <= m; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3];
        const int *before = rows[(i + 1) % 3];

        row[0] = i;
        for (j = 1; j <= n; j++) {
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return rows[m % 3][n];
}

void gb_nearest_try(struct gb_nearest *nearest, const char *name) {
    int changes;

    if (nearest->changes == 0 || strlen(name) > GB_NEAREST_MAX)
        return;
    changes = distance(nearest->word, nearest->length, name);
    if (changes >= nearest->changes)
        return;
    nearest->changes = changes;
    nearest->name = name;
}

char *gb_nearest_hint(const struct gb_nearest *nearest, const char *before, char text[GB_NEAREST_HINT]) {
    text[0] = '\0';
    if (nearest->name != NULL)
        snprintf(text, GB_NEAREST_HINT, "; is %s%s meant?", before, nearest->name);
    return text;
}

/* --- parse -------------------------------------------------------------------------------------------------------- */

enum gb_parse gb_parse_u64(const char *text, size_t len, uint64_t *ret_value) {
    uint64_t value = 0;
    size_t i;

    if (len == 0)
        return GB_PARSE_MALFORMED;
    if (text[0] == '-' && len > 1 && text[1] >= '0' && text[1] <= '9')
        return GB_PARSE_NEGATIVE;
    for (i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return GB_PARSE_MALFORMED;
    }
    for (i = 0; i < len; i++) {
        if (!gb_mul_u64(value, 10, &value) || !gb_add_u64(value, (uint64_t)(text[i] - '0'), &value))
            return GB_PARSE_OVERFLOW;
    }
    *ret_value = value;
    return GB_PARSE_OK;
}

enum gb_parse gb_parse_size(const char *text, size_t len, uint64_t *ret_bytes) {
    static const char suffixes[] = "KMGT";
    size_t digits = 0;
    uint64_t value;
    enum gb_parse r;
    const char *at;
    unsigned shift;

    while (digits < len && ((text[digits] >= '0' && text[digits] <= '9') || (digits == 0 && text[0] == '-')))
        digits++;
    r = gb_parse_u64(text, digits, &value);
    if (r != GB_PARSE_OK)
        return r;
    if (digits < len) {
        at = memchr(suffixes, text[digits], sizeof(suffixes) - 1);
        if (!at || (len != digits + 1 && !(len == digits + 3 && memcmp(text + digits + 1, "iB", 2) == 0)))
            return GB_PARSE_MALFORMED;
        shift = (unsigned)(at - suffixes + 1) * 10;
        if (!gb_mul_u64(value, 1ULL << shift, &value))
            return GB_PARSE_OVERFLOW;
    }
    *ret_bytes = value;
    return GB_PARSE_OK;
}

enum gb_parse gb_parse_bool(const char *text, size_t len, bool *ret_value) {
    static const char *const words[2][5] = {{"false", "0", "no", "off", NULL}, {"true", "1", "yes", "on", ""}};
    int side;
    int i;

    for (side = 0; side < 2; side++) {
        for (i = 0; i < 5; i++) {
            const char *w = words[side][i];

            if (w && strlen(w) == len && memcmp(w, text, len) == 0) {
                *ret_value = side == 1;
                return GB_PARSE_OK;
            }
        }
    }
    return GB_PARSE_MALFORMED;
}

bool gb_mul_u64(uint64_t a, uint64_t b, uint64_t *ret) {
    return !__builtin_mul_overflow(a, b, ret);
}

bool gb_add_u64(uint64_t a, uint64_t b, uint64_t *ret) {
    return !__builtin_add_overflow(a, b, ret);
}

/* --- rule --------------------------------------------------------------------------------------------------------- */

size_t gb_rules_count(const char *text, size_t len) {
    size_t count = 1;
    size_t i;

    for (i = 0; i < len; i++)
        count += text[i] == ',';
    return count;
}

/* OP[@N][+] */
static void read_when(struct gb_rule *rule, size_t len) {
    bool onward = len > 0 && rule->text[len - 1] == '+';
    size_t end = onward ? len - 1 : len;
    const char *at = memchr(rule->text, '@', end);

    rule->op_len = at ? (size_t)(at - rule->text) : end;
    rule->first = 1;
    if (at && gb_parse_u64(at + 1, end - rule->op_len - 1, &rule->first) != GB_PARSE_OK)
        rule->first = 0;
    rule->last = at && !onward ? rule->first : UINT64_MAX;
}

bool gb_rules_next(const char *text, size_t len, size_t *at, struct gb_rule *ret) {
    const char *end;

    if (len == 0 || *at > len)
        return false;
    *ret = (struct gb_rule){.text = text + *at, .len = len - *at};
    end = memchr(ret->text, ',', ret->len);
    if (end)
        ret->len = (size_t)(end - ret->text);
    *at += ret->len + 1;
    end = memchr(ret->text, '=', ret->len);
    if (!end)
        return true;
    read_when(ret, (size_t)(end - ret->text));
    ret->what = end + 1;
    ret->what_len = ret->len - (size_t)(end + 1 - ret->text);
    return true;
}

/* --- conf --------------------------------------------------------------------------------------------------------- */

char *gb_conf_trim(char *line) {
    char *end;
    char *p;

    for (p = line; *p != '\0'; p++)
        if (*p == '#' && (p == line || isspace((unsigned char)p[-1])))
            *p = '\0';
    while (isspace((unsigned char)*line))
        line++;
    end = line + strlen(line);
    while (end > line && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return line;
}

/* Typewriter's quotes, a backtick, and those of text processors in UTF-8. */
static size_t quote_at(const char *s, size_t n) {
    static const char *const quotes[] = {"\"",     "'",      "`",      "\u2018", "\u2019",
                                         "\u201c", "\u201d", "\u201e", "\u00ab", "\u00bb"};
    size_t i;

    for (i = 0; i < sizeof(quotes) / sizeof(quotes[0]); i++) {
        size_t len = strlen(quotes[i]);

        if (n >= len && memcmp(s, quotes[i], len) == 0)
            return len;
    }
    return 0;
}

const char *gb_conf_quotes(const char *value, size_t n) {
    return quote_at(value, n) > 0 ? "stands in quotes, which would be part of it: write it without them" : NULL;
}

/* $NAME, ${NAME} or $(COMMAND). */
static bool has_variable(const char *s, size_t n) {
    size_t i;

    for (i = 0; i + 1 < n; i++)
        if (s[i] == '$' && (isalpha((unsigned char)s[i + 1]) || strchr("_{(", s[i + 1]) != NULL))
            return true;
    return false;
}

const char *gb_conf_path(const char *path, size_t n) {
    if (quote_at(path, n) > 0)
        return gb_conf_quotes(path, n);
    if (n > 0 && path[0] == '~')
        return "begins with ~, which only a shell replaces by a home folder: write the whole path, or ./~ for a name "
               "that "
               "begins so";
    if (n > 0 && memchr(path, '"', n) != NULL)
        return "has quotes in it, which would be part of it: write it without them";
    return has_variable(path, n) ? "has a variable, which only a shell replaces: write what it stands for" : NULL;
}

const char *gb_conf_mark(const char *text) {
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0)
        return "begins with a byte-order mark (EF BB BF): save it as UTF-8 without one";
    if (strncmp(text, "\xff\xfe", 2) == 0 || strncmp(text, "\xfe\xff", 2) == 0)
        return "begins with the byte-order mark of UTF-16: save it as UTF-8 without one";
    return NULL;
}

bool gb_conf_split(char *text, char **ret_name, char **ret_value) {
    char *value = strchr(text, '=');

    if (value == NULL)
        return false;
    *value++ = '\0';
    *ret_name = gb_conf_trim(text);
    *ret_value = gb_conf_trim(value);
    return true;
}

/* --- help --------------------------------------------------------------------------------------------------------- */

void gb_put_help(FILE *out, const char *left, const char *right, int column, int width) {
    int at = column;

    if (strlen(left) >= (size_t)column)
        fprintf(out, "%s\n%*s", left, column, "");
    else
        fprintf(out, "%-*s", column, left);
    while (*right != '\0') {
        int n = (int)strcspn(right, " ");

        if (at > column && at + 1 + n > width) {
            fprintf(out, "\n%*s", column, "");
            at = column;
        } else if (at > column) {
            putc(' ', out);
            at++;
        }
        fwrite(right, 1, (size_t)n, out);
        at += n;
        right += n + (right[n] == ' ');
    }
    putc('\n', out);
}

/* --- words of a fixed list ---------------------------------------------------------------------------------------- */

char *gb_word_quote(const char *word, size_t len, char *out) {
    size_t shown = len < GB_WORD_QUOTE_SIZE - 1 ? len : GB_WORD_QUOTE_SIZE - 4;
    size_t i;

    for (i = 0; i < shown; i++)
        out[i] = word[i] >= 0x20 && word[i] < 0x7f ? word[i] : '?';
    strcpy(out + shown, shown < len ? "..." : "");
    return out;
}

int gb_word_parse(const char *what, const char *const *names, size_t count, const char *word, size_t len,
                  size_t *ret_index, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];
    char list[sizeof(err->detail)];
    size_t at = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], word, len) == 0) {
            *ret_index = i;
            return 0;
        }
    }
    list[0] = '\0';
    for (i = 0; i < count && at < sizeof(list); i++)
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", i > 0 ? ", " : "", names[i]);
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the %s \"%s\" is not permitted; permitted are %s", what,
                        gb_word_quote(word, len, quoted), list);
}

char **gb_texts_copy(const char *const *texts, size_t count) {
    char **copy = calloc(count + 1, sizeof(*copy));
    size_t i;

    for (i = 0; copy && i < count; i++) {
        copy[i] = strdup(texts[i]);
        if (!copy[i]) {
            gb_texts_free(copy);
            return NULL;
        }
    }
    return copy;
}

void gb_texts_free(char **texts) {
    size_t i;

    for (i = 0; texts && texts[i]; i++)
        free(texts[i]);
    free(texts);
}
