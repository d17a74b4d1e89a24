/* Python's pickle, protocol 2: a writer that batches items and refers to keys by number; and what the first bytes of an
 * archive or a pickle look like. Pure. */
#include "format/pickle.h"

#include <stdlib.h>
#include <string.h>

/* --- pickle ------------------------------------------------------------------------------------------------------- */

static void put(struct gb_pickle *p, const void *data, size_t n) {
    size_t size = p->size ? p->size : 4096;
    char *bigger;

    if (p->failed)
        return;
    while (size < p->used + n)
        size *= 2;
    if (size != p->size) {
        bigger = realloc(p->s, size);
        if (!bigger) {
            p->failed = true;
            return;
        }
        p->s = bigger;
        p->size = size;
    }
    memcpy(p->s + p->used, data, n);
    p->used += n;
}

static void code(struct gb_pickle *p, unsigned char c) {
    put(p, &c, 1);
}

/* Integers of a few bytes after a code, the lowest byte first. */
static void coded(struct gb_pickle *p, char c, uint64_t value, unsigned bytes) {
    unsigned char text[9] = {(unsigned char)c};
    unsigned i;

    for (i = 0; i < bytes; i++)
        text[1 + i] = (unsigned char)(value >> 8 * i);
    put(p, text, 1 + bytes);
}

static void text(struct gb_pickle *p, const char *s) {
    size_t n = strlen(s);

    coded(p, 'X', n, 4); /* BINUNICODE */
    put(p, s, n);
}

static void word(struct gb_pickle *p, const char *s) {
    unsigned i = 0;

    while (i < p->key_count && p->keys[i] != s)
        i++;
    if (i == p->key_count) /* the same text may stand elsewhere */
        for (i = 0; i < p->key_count && strcmp(p->keys[i], s) != 0;)
            i++;
    if (i < p->key_count) {
        coded(p, 'h', i, 1); /* BINGET */
        return;
    }
    text(p, s);
    if (p->key_count < GB_PICKLE_KEYS) {
        coded(p, 'q', p->key_count, 1); /* BINPUT */
        p->keys[p->key_count++] = s;
    }
}

/* Writes the key of the next value, and ends a full batch. */
static void lead(struct gb_pickle *p, const char *key) {
    unsigned at = p->depth - 1;

    if (p->depth == 0)
        return;
    if (p->level[at].count == GB_PICKLE_BATCH) {
        code(p, p->level[at].dict ? 'u' : 'e'); /* SETITEMS, APPENDS */
        code(p, '(');
        p->level[at].count = 0;
    }
    p->level[at].count++;
    if (key)
        word(p, key);
}

void gb_pickle_begin(struct gb_pickle *p) {
    put(p, "\x80\x02", 2); /* PROTO 2 */
}

void gb_pickle_end(struct gb_pickle *p) {
    code(p, '.'); /* STOP */
}

void gb_pickle_done(struct gb_pickle *p) {
    free(p->s);
    *p = (struct gb_pickle){0};
}

void gb_pickle_open(struct gb_pickle *p, const char *key, char bracket) {
    lead(p, key);
    code(p, bracket == '{' ? '}' : ']'); /* EMPTY_DICT, EMPTY_LIST */
    code(p, '(');                        /* MARK */
    if (p->depth == GB_PICKLE_DEPTH) {
        p->failed = true;
        return;
    }
    p->level[p->depth].dict = bracket == '{';
    p->level[p->depth].count = 0;
    p->depth++;
}

void gb_pickle_close(struct gb_pickle *p) {
    if (p->depth == 0) {
        p->failed = true;
        return;
    }
    p->depth--;
    code(p, p->level[p->depth].dict ? 'u' : 'e');
}

void gb_pickle_string(struct gb_pickle *p, const char *key, const char *value) {
    lead(p, key);
    text(p, value);
}

void gb_pickle_word(struct gb_pickle *p, const char *key, const char *value) {
    lead(p, key);
    word(p, value);
}

static void number(struct gb_pickle *p, uint64_t value, bool negative) {
    unsigned bytes = 1;
    unsigned char longer[3] = {0x8a, 9, 0}; /* LONG1 */

    if (!negative && value <= 0x7fffffff) {
        if (value <= 0xff)
            coded(p, 'K', value, 1);
        else if (value <= 0xffff)
            coded(p, 'M', value, 2);
        else
            coded(p, 'J', value, 4);
        return;
    }
    if (!negative && value >> 63) { /* one byte more, for the sign */
        put(p, longer, 2);
        coded(p, (char)value, value >> 8, 7);
        put(p, longer + 2, 1);
        return;
    }
    while (bytes < 8 && (int64_t)value >> (8 * bytes - 1) != (negative ? -1 : 0))
        bytes++;
    code(p, 0x8a);
    coded(p, (char)bytes, value, bytes);
}

void gb_pickle_u64(struct gb_pickle *p, const char *key, uint64_t value) {
    lead(p, key);
    number(p, value, false);
}

void gb_pickle_i64(struct gb_pickle *p, const char *key, int64_t value) {
    lead(p, key);
    number(p, (uint64_t)value, value < 0);
}

void gb_pickle_bool(struct gb_pickle *p, const char *key, bool value) {
    lead(p, key);
    code(p, value ? 0x88 : 0x89);
}

void gb_pickle_null(struct gb_pickle *p, const char *key) {
    lead(p, key);
    code(p, 'N');
}

/* --- archive ------------------------------------------------------------------------------------------------------ */

#define BEGINS(what) "the body begins as " what " and is stored as its bytes, not as arrays; "
#define MEANT "?format=raw says that the bytes are meant"

static const struct {
    const char *begin;
    size_t n;
    const char *warning;
} forms[] = {
    {"PK\3\4", 4,
     BEGINS("a zip archive (.npz, .pt)") "send the arrays in it as .npy or safetensors if these are meant; " MEANT},
    {"PK\5\6", 4, BEGINS("an empty zip archive") MEANT},
    {"\x1f\x8b\x08", 3, BEGINS("a gzip file") "Content-Encoding: gzip has it decoded; " MEANT},
    {"\x28\xb5\x2f\xfd", 4, BEGINS("a zstd file") "Content-Encoding: zstd has it decoded; " MEANT},
    {"\x89HDF\r\n\x1a\n", 8, BEGINS("an HDF5 file") "send its arrays as .npy or safetensors; " MEANT},
    {"GGUF", 4, BEGINS("a GGUF file") "send its tensors as safetensors; " MEANT},
};

/* Two bytes would often be those of numbers: the first operation is checked, too. From protocol 4 on it is a frame,
 * whose length has eight bytes. torch.save() wrote a long number first, before it wrote archives. */
static int is_pickle(const unsigned char *p, size_t n) {
    if (n < 4 || p[0] != 0x80)
        return 0;
    if (p[1] == 4 || p[1] == 5)
        return p[2] == 0x95 && n >= 11 && p[9] == 0 && p[10] == 0;
    return (p[1] == 2 || p[1] == 3) && p[2] != '\0' && strchr("](})cXUBCKMJG\x8a", p[2]) != NULL;
}

const char *gb_archive_warning(const void *data, size_t n) {
    size_t i;

    for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (n >= forms[i].n && memcmp(data, forms[i].begin, forms[i].n) == 0)
            return forms[i].warning;
    return is_pickle(data, n) ? BEGINS("a pickle (.pkl, .pt)") "send the arrays in it as .npy or safetensors if these "
                                                               "are meant; " MEANT
                              : NULL;
}
