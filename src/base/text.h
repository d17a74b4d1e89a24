/* Text: shared and counted, escaped, names of things, the nearest name to a mistyped word, numbers and flags. */
#ifndef GB_BASE_TEXT_H
#define GB_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

/* Immutable text that many share: a count of references and the bytes. NULL is an empty text, and is accepted
 * everywhere. */

struct gb_text;

/* Copies text[0..len), with one reference. [any thread] NULL when memory is exhausted. */
struct gb_text *gb_text_new(const char *text, size_t len);

/* One reference more. [any thread] Returns text. */
struct gb_text *gb_text_ref(struct gb_text *text);

/* One reference less; the last one frees. [any thread] */
void gb_text_unref(struct gb_text *text);

/* A reference to text into *at, which gives back what it had. [any thread] */
void gb_text_set(struct gb_text **at, struct gb_text *text);

/* The bytes with a NUL behind them, valid as long as the caller's reference; "" for NULL. */
const char *gb_text_s(const struct gb_text *text);

/* --- escapes: text from clients is harmless on a terminal and in a log line --------------------------------------- */

/* Bytes of the character at s (RFC 3629); 0: it is not one. */
size_t gb_utf8_len(const char *s);

/* Copies text, with control characters (C0, DEL, C1) and bytes that are no UTF-8 as \xNN; cut after a whole character
 * where it does not fit. Returns the length without the NUL. size is at least 1. */
size_t gb_escape(char *out, size_t size, const char *text);

/* Names of sessions, pools, streams and buffers: [A-Za-z0-9][A-Za-z0-9._-]{0,127}. */

#define GB_NAME_MAX 128

/* A name by value; always NUL-terminated. */
struct gb_name {
    char s[GB_NAME_MAX + 1];
};

/* The place of a named thing: its session, and its name there. */
struct gb_locator {
    struct gb_name session;
    struct gb_name name;
};

/* Checks and copies text[0..len). `what` names the thing in the error ("buffer name"). Returns 0, or -1 with
 * INVALID_NAME saying which character or length is wrong. */
int gb_name_parse(const char *what, const char *text, size_t len, struct gb_name *ret_name, struct gb_error *err);

bool gb_name_equal(const struct gb_name *a, const struct gb_name *b);

/* The name that a mistyped word may have been meant for. Pure. */

#define GB_NEAREST_MAX 40 /* longer words and names are near to nothing */

#define GB_NEAREST_HINT (GB_NEAREST_MAX + 20) /* bytes of a hint */

struct gb_nearest {
    const char *word; /* borrowed */
    int length;       /* of it */
    const char *name; /* the best so far, borrowed; NULL: none is near */
    int changes;      /* a name must need fewer */
};

/* word[0..length) need not end in NUL. */
void gb_nearest_begin(struct gb_nearest *nearest, const char *word, size_t length);

/* Takes the name if it is nearer than all before: if fewer letters come, go, change or swap places. */
void gb_nearest_try(struct gb_nearest *nearest, const char *name);

/* "; is --listen meant?" in text if a name is near, else "". before: "--" or "". Returns text. */
char *gb_nearest_hint(const struct gb_nearest *nearest, const char *before, char text[GB_NEAREST_HINT]);

/* Strict parsing of numbers and flags: the whole text or nothing. */

enum gb_parse { GB_PARSE_OK, GB_PARSE_MALFORMED, GB_PARSE_NEGATIVE, GB_PARSE_OVERFLOW };

/* Decimal digits only: no sign, no space. */
enum gb_parse gb_parse_u64(const char *text, size_t len, uint64_t *ret_value);

/* Decimal digits with an optional binary suffix K, M, G or T (1024-based, "MiB" and "M" alike). */
enum gb_parse gb_parse_size(const char *text, size_t len, uint64_t *ret_bytes);

/* "true", "1", "yes", "on", "" -> true; "false", "0", "no", "off" -> false. */
enum gb_parse gb_parse_bool(const char *text, size_t len, bool *ret_value);

/* a * b and a + b without overflow; false when it would overflow. */
bool gb_mul_u64(uint64_t a, uint64_t b, uint64_t *ret);
bool gb_add_u64(uint64_t a, uint64_t b, uint64_t *ret);

/* The grammar that the fault options share: rules with commas between them, each OP[@N][+]=WHAT. */

/* One rule, in parts of the text that it was read from. */
struct gb_rule {
    const char *text;
    size_t len;
    size_t op_len;  /* OP begins the text */
    uint64_t first; /* the calls that it is for, from 1; 0: what stands behind '@' is no such number */
    uint64_t last;
    const char *what;
    size_t what_len;
};

/* How many rules the text has at most. */
size_t gb_rules_count(const char *text, size_t len);

/* The rule at *at, which moves behind it. Returns false at the end of the text; an empty text has no rule. A rule
 * without '=' has what NULL. */
bool gb_rules_next(const char *text, size_t len, size_t *at, struct gb_rule *ret);

/* Lines of a configuration file: "name = value", and # begins a comment; and values that a shell would change and
 * nothing else does. Pure. */

/* Cuts the comment and the space around a line, in place. Returns the first character that counts; "" if none does. A #
 * within a word begins no comment. */
char *gb_conf_trim(char *line);

/* Cuts a trimmed line in two, in place: *ret_name and *ret_value, without space around either. False if it has no =. */
bool gb_conf_split(char *text, char **ret_name, char **ret_value);

/* Each returns a clause about the text, which says what would be right, or NULL. The clauses are static. */

/* Of a value in quotes, which would be part of it. */
const char *gb_conf_quotes(const char *value, size_t n);
/* Of a path with quotes around it, a ~ before it or a $NAME in it. */
const char *gb_conf_path(const char *path, size_t n);
/* Of a file's first bytes, if these are a mark of its encoding. */
const char *gb_conf_mark(const char *text);

/* Prints an entry of a help: left, and from that column on the words of right, in lines of at most `width` columns. */
void gb_put_help(FILE *out, const char *left, const char *right, int column, int width);

/* Finds word[0..len) among names[0..count). Returns 0, or -1 with INVALID_ARGUMENT that calls the thing `what`, quotes
 * the word and lists all names. */
int gb_word_parse(const char *what, const char *const *names, size_t count, const char *word, size_t len,
                  size_t *ret_index, struct gb_error *err);

/* Copies texts[0..count). Returns a list that ends with NULL, which gb_texts_free frees; NULL: memory is exhausted. */
char **gb_texts_copy(const char *const *texts, size_t count);
void gb_texts_free(char **texts); /* NULL is accepted */

/* The word as it may stand in an error's detail: cut to fit, with '?' for every byte that is not printable ASCII.
 * Returns out. */
#define GB_WORD_QUOTE_SIZE 40
char *gb_word_quote(const char *word, size_t len, char *out);

#endif
