/* The safetensors format: the header's text, read strictly, and what it says of the tensors. Pure. */
#include "format/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/encoding.h"
#include "base/text.h"

/* --- safetensors text --------------------------------------------------------------------------------------------- */

#define DEPTH_MAX 32

/* All return 0, or -1 with UNSUPPORTED_ARRAY, which says at which byte of the file. what: the sentence. */
static int json_text_fail(struct gb_json_text *t, const char *what) {
    return gb_error_set(t->err, GB_ERR_UNSUPPORTED_ARRAY,
                        "the safetensors header is malformed at byte %zu of the file: %s; it must be a JSON object of "
                        "dtype, shape and data_offsets by tensor",
                        GB_SAFETENSORS_LENGTH + (size_t)(t->at - t->begin), what);
}

void gb_json_text_space(struct gb_json_text *t) {
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t' || *t->at == '\n' || *t->at == '\r'))
        t->at++;
}

bool gb_json_text_accept(struct gb_json_text *t, char c) {
    gb_json_text_space(t);
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

int gb_json_text_expect(struct gb_json_text *t, char c, const char *what) {
    return gb_json_text_accept(t, c) ? 0 : json_text_fail(t, what);
}

bool gb_json_text_more(struct gb_json_text *t, char close, bool *first, bool *failed) {
    if (*first) {
        *first = false;
        return !gb_json_text_accept(t, close);
    }
    if (gb_json_text_accept(t, close))
        return false;
    *failed = gb_json_text_expect(t, ',', "a comma is missing") < 0;
    return !*failed;
}

/* --- strings ------------------------------------------------------------------------------------------------------ */

static void put(struct gb_json_text *t, char c) {
    if (t->out)
        *t->out++ = c;
}

static void put_code(struct gb_json_text *t, uint32_t code) {
    if (code < 0x80) {
        put(t, (char)code);
        return;
    }
    if (code < 0x800) {
        put(t, (char)(0xc0 | code >> 6));
    } else if (code < 0x10000) {
        put(t, (char)(0xe0 | code >> 12));
        put(t, (char)(0x80 | (code >> 6 & 0x3f)));
    } else {
        put(t, (char)(0xf0 | code >> 18));
        put(t, (char)(0x80 | (code >> 12 & 0x3f)));
        put(t, (char)(0x80 | (code >> 6 & 0x3f)));
    }
    put(t, (char)(0x80 | (code & 0x3f)));
}

/* Reads the four digits after \u. */
static int read_hex(struct gb_json_text *t, uint32_t *ret) {
    uint32_t code = 0;
    int i;

    if (t->end - t->at < 4)
        return json_text_fail(t, "an escape does not end");
    for (i = 0; i < 4; i++) {
        int digit = gb_hex_digit(*t->at++);

        if (digit < 0)
            return json_text_fail(t, "an escape is not hexadecimal");
        code = code << 4 | (uint32_t)digit;
    }
    *ret = code;
    return 0;
}

static int read_unicode(struct gb_json_text *t) {
    uint32_t code;
    uint32_t low;

    if (read_hex(t, &code) < 0)
        return -1;
    if (code == 0)
        return json_text_fail(t, "a string holds NUL");
    if (code >= 0xd800 && code < 0xe000) {
        if (code >= 0xdc00 || t->end - t->at < 6 || t->at[0] != '\\' || t->at[1] != 'u')
            return json_text_fail(t, "half a surrogate pair");
        t->at += 2;
        if (read_hex(t, &low) < 0)
            return -1;
        if (low < 0xdc00 || low >= 0xe000)
            return json_text_fail(t, "half a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    put_code(t, code);
    return 0;
}

/* Reads the character after a backslash. */
static int read_escape(struct gb_json_text *t) {
    static const char letters[] = "\"\\/bfnrt";
    static const char meant[] = "\"\\/\b\f\n\r\t";
    const char *letter;
    char c;

    if (t->at == t->end)
        return json_text_fail(t, "an escape does not end");
    c = *t->at++;
    if (c == 'u')
        return read_unicode(t);
    letter = c != '\0' ? strchr(letters, c) : NULL;
    if (!letter)
        return json_text_fail(t, "an escape is unknown");
    put(t, meant[letter - letters]);
    return 0;
}

/* Copies one character of more than one byte (RFC 3629). */
static int read_utf8(struct gb_json_text *t) {
    unsigned char first = (unsigned char)*t->at;
    int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    uint32_t code = first & (0x3fu >> more);
    int i;

    if (first < 0xc2 || first > 0xf4 || t->end - t->at <= more)
        return json_text_fail(t, "a string is not UTF-8");
    for (i = 1; i <= more; i++) {
        unsigned char c = (unsigned char)t->at[i];

        if ((c & 0xc0) != 0x80)
            return json_text_fail(t, "a string is not UTF-8");
        code = code << 6 | (c & 0x3f);
    }
    if ((more == 2 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
        (more == 3 && (code < 0x10000 || code > 0x10ffff)))
        return json_text_fail(t, "a string is not UTF-8");
    for (i = 0; i <= more; i++)
        put(t, *t->at++);
    return 0;
}

int gb_json_text_string(struct gb_json_text *t, struct gb_json_word *ret) {
    const char *start = t->out;
    int r = gb_json_text_expect(t, '"', "a string is missing");

    while (r == 0 && t->at < t->end && *t->at != '"') {
        unsigned char c = (unsigned char)*t->at;

        if (c < 0x20)
            return json_text_fail(t, "a string holds a control character");
        if (c >= 0x80) {
            r = read_utf8(t);
            continue;
        }
        t->at++;
        if (c == '\\')
            r = read_escape(t);
        else
            put(t, (char)c);
    }
    if (r < 0)
        return -1;
    if (t->at == t->end)
        return json_text_fail(t, "a string does not end");
    t->at++;
    if (ret)
        *ret = (struct gb_json_word){.s = start, .len = (size_t)(t->out - start)};
    put(t, '\0');
    return 0;
}

/* --- the rest ----------------------------------------------------------------------------------------------------- */

int gb_json_text_u64(struct gb_json_text *t, uint64_t *ret) {
    const char *digits;
    size_t n;

    gb_json_text_space(t);
    digits = t->at;
    while (t->at < t->end && *t->at >= '0' && *t->at <= '9')
        t->at++;
    n = (size_t)(t->at - digits);
    if (n == 0 || (n > 1 && digits[0] == '0') ||
        (t->at < t->end && (*t->at == '.' || *t->at == 'e' || *t->at == 'E')) ||
        gb_parse_u64(digits, n, ret) != GB_PARSE_OK)
        return json_text_fail(t, "a size or offset is not a whole number of 64 bits");
    return 0;
}

static bool take(struct gb_json_text *t, char c) {
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

/* Takes the digits that come; returns how many. */
static size_t take_digits(struct gb_json_text *t) {
    const char *start = t->at;

    while (t->at < t->end && *t->at >= '0' && *t->at <= '9')
        t->at++;
    return (size_t)(t->at - start);
}

static int skip_number(struct gb_json_text *t) {
    bool minus = take(t, '-');

    if (!take(t, '0') && take_digits(t) == 0)
        return json_text_fail(t, minus ? "a number has no digits" : "a value is missing");
    if (take(t, '.') && take_digits(t) == 0)
        return json_text_fail(t, "a number has no digits behind its point");
    if (!take(t, 'e') && !take(t, 'E'))
        return 0;
    if (!take(t, '+'))
        take(t, '-');
    return take_digits(t) > 0 ? 0 : json_text_fail(t, "a number has no digits in its exponent");
}

static int skip_word(struct gb_json_text *t) {
    static const char *const words[] = {"null", "true", "false"};
    size_t i;

    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t n = strlen(words[i]);

        if ((size_t)(t->end - t->at) >= n && memcmp(t->at, words[i], n) == 0) {
            t->at += n;
            return 0;
        }
    }
    return skip_number(t);
}

static int skip(struct gb_json_text *t, int depth) {
    bool object = gb_json_text_accept(t, '{');
    bool first = true;
    bool failed = false;

    if (!object && !gb_json_text_accept(t, '['))
        return t->at < t->end && *t->at == '"' ? gb_json_text_string(t, NULL) : skip_word(t);
    if (depth == DEPTH_MAX)
        return json_text_fail(t, "it is nested too deeply");
    while (gb_json_text_more(t, object ? '}' : ']', &first, &failed)) {
        if (object && (gb_json_text_string(t, NULL) < 0 || gb_json_text_expect(t, ':', "a colon is missing") < 0))
            return -1;
        if (skip(t, depth + 1) < 0)
            return -1;
    }
    return failed ? -1 : 0;
}

int gb_json_text_skip(struct gb_json_text *t) {
    return skip(t, 0);
}

/* --- safetensors -------------------------------------------------------------------------------------------------- */

/* Longer headers are not written, so that a number beyond is not a length, or not of such a file. */
#define LENGTH_PLAUSIBLE (1ull << 40)

static uint64_t read_length(const unsigned char *p) {
    uint64_t n = 0;
    int i;

    for (i = GB_SAFETENSORS_LENGTH - 1; i >= 0; i--)
        n = n << 8 | p[i];
    return n;
}

static size_t spaces(const char *text, size_t n) {
    size_t i = 0;

    while (i < n && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r'))
        i++;
    return i;
}

/* The first characters of a header, after its brace: a name in quotes, or the closing brace of an empty one. */
static bool goes_on(const char *text, size_t n) {
    size_t i = spaces(text, n);

    if (i == n)
        return true;
    if (text[i] == '}')
        return i + 1 + spaces(text + i + 1, n - i - 1) == n;
    if (text[i] != '"')
        return false;
    if (i + 1 < n && text[i + 1] == '"') /* an empty name; what may stand behind it, too, is seen */
        i += 2 + spaces(text + i + 2, n - i - 2);
    while (i < n && (unsigned char)text[i] >= 0x20)
        i++;
    return i == n;
}

bool gb_safetensors_begins(const void *data, size_t n) {
    const char *text = (const char *)data + GB_SAFETENSORS_PREFIX;
    uint64_t length;

    if (n < GB_SAFETENSORS_PREFIX || text[-1] != '{')
        return false;
    n = (n < GB_SAFETENSORS_LOOK ? n : GB_SAFETENSORS_LOOK) - GB_SAFETENSORS_PREFIX;
    length = read_length(data);
    if (length > 0 && length - 1 < n)
        n = (size_t)length - 1;
    return length < LENGTH_PLAUSIBLE && goes_on(text, n);
}

int gb_safetensors_data_at(const void *prefix, size_t *ret_at, struct gb_error *err) {
    const unsigned char *p = prefix;
    uint64_t n = read_length(p);

    if (memcmp(p, "version h", GB_SAFETENSORS_PREFIX) == 0)
        return gb_error_set(
            err, GB_ERR_UNSUPPORTED_ARRAY,
            "this is a pointer of Git LFS, in whose place \"git lfs pull\" brings the safetensors file");
    if (p[GB_SAFETENSORS_LENGTH] != '{' || n < 2)
        return gb_error_set(
            err, GB_ERR_UNSUPPORTED_ARRAY,
            "what comes does not begin as a safetensors file: eight bytes with the length of the header "
            "and then the header's first brace");
    if (n > GB_SAFETENSORS_HEADER_MAX) {
        gb_error_numbers(err, GB_SAFETENSORS_HEADER_MAX, 0, n);
        return gb_error_set(err, GB_ERR_BODY_TOO_LARGE, "the safetensors header has %llu bytes; at most %u are read",
                            (unsigned long long)n, GB_SAFETENSORS_HEADER_MAX);
    }
    *ret_at = GB_SAFETENSORS_LENGTH + (size_t)n;
    return 0;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

struct reader {
    struct gb_json_text text;
    struct gb_safetensors file;
    size_t room;
    bool metadata; /* was there */
};

static int no_memory(struct gb_error *err) {
    return gb_error_set(err, GB_ERR_SATURATED, "no memory for the header; try again later");
}

static bool word_is(const struct gb_json_word *word, const char *s) {
    return word->len == strlen(s) && memcmp(word->s, s, word->len) == 0;
}

/* Reads an object of strings, or null, to check it; keeps nothing. */
static int read_metadata(struct gb_json_text *t) {
    bool first = true;
    bool failed = false;

    if (t->end - t->at >= 4 && memcmp(t->at, "null", 4) == 0)
        return gb_json_text_skip(t);
    if (gb_json_text_expect(t, '{', GB_SAFETENSORS_METADATA " is not an object") < 0)
        return -1;
    while (gb_json_text_more(t, '}', &first, &failed)) {
        if (gb_json_text_string(t, NULL) < 0 || gb_json_text_expect(t, ':', "a colon is missing") < 0 ||
            gb_json_text_string(t, NULL) < 0)
            return -1;
    }
    return failed ? -1 : 0;
}

static int read_shape(struct gb_json_text *t, struct gb_shape *ret) {
    struct gb_shape shape = {0};
    bool first = true;
    bool failed = false;

    if (gb_json_text_expect(t, '[', "a shape is not a list") < 0)
        return -1;
    while (gb_json_text_more(t, ']', &first, &failed)) {
        if (shape.dims == GB_DIMS_MAX)
            return gb_error_set(t->err, GB_ERR_UNSUPPORTED_ARRAY,
                                "a tensor has more than %d dimensions; reshape it before the upload", GB_DIMS_MAX);
        if (gb_json_text_u64(t, &shape.dim[shape.dims++]) < 0)
            return -1;
    }
    *ret = shape;
    return failed ? -1 : 0;
}

static int read_offsets(struct gb_json_text *t, struct gb_safetensor *tensor) {
    if (gb_json_text_expect(t, '[', "data_offsets is not a list") < 0 || gb_json_text_u64(t, &tensor->begin) < 0 ||
        gb_json_text_expect(t, ',', "data_offsets has fewer than two numbers") < 0 ||
        gb_json_text_u64(t, &tensor->end) < 0)
        return -1;
    return gb_json_text_expect(t, ']', "data_offsets has more than two numbers");
}

enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };

static int read_member(struct gb_json_text *t, struct gb_safetensor *tensor, unsigned *seen) {
    struct gb_json_word word;
    unsigned which;

    if (gb_json_text_string(t, &word) < 0 || gb_json_text_expect(t, ':', "a colon is missing") < 0)
        return -1;
    which = word_is(&word, "dtype")          ? DTYPE
            : word_is(&word, "shape")        ? SHAPE
            : word_is(&word, "data_offsets") ? OFFSETS
                                             : 0;
    if (*seen & which)
        return json_text_fail(t, "a key is given twice");
    *seen |= which;
    if (which == SHAPE)
        return read_shape(t, &tensor->shape);
    if (which == OFFSETS)
        return read_offsets(t, tensor);
    if (which == 0)
        return gb_json_text_skip(t);
    if (gb_json_text_string(t, &word) < 0)
        return -1;
    return gb_dtype_parse_safetensors(word.s, word.len, &tensor->dtype, t->err);
}

static struct gb_safetensor *more(struct reader *r) {
    struct gb_safetensor *bigger;

    if (r->file.count < r->room)
        return &r->file.tensors[r->file.count++];
    r->room = r->room > 0 ? r->room * 2 : 16;
    bigger = realloc(r->file.tensors, r->room * sizeof(*bigger));
    if (!bigger)
        return NULL;
    r->file.tensors = bigger;
    return &r->file.tensors[r->file.count++];
}

static int read_tensor(struct reader *r, const struct gb_json_word *name) {
    struct gb_json_text *t = &r->text;
    struct gb_safetensor *tensor;
    unsigned seen = 0;
    bool first = true;
    bool failed = false;
    char *scratch;

    if (r->file.count == GB_SAFETENSORS_TENSORS_MAX)
        return gb_error_set(t->err, GB_ERR_BODY_TOO_LARGE,
                            "the safetensors file holds more than %d tensors; split it into several",
                            GB_SAFETENSORS_TENSORS_MAX);
    tensor = more(r);
    if (!tensor)
        return no_memory(t->err);
    *tensor = (struct gb_safetensor){.name = name->s, .name_len = name->len};
    if (gb_json_text_expect(t, '{', "a tensor is not an object") < 0)
        return -1;
    scratch = t->out;
    while (gb_json_text_more(t, '}', &first, &failed)) {
        if (read_member(t, tensor, &seen) < 0)
            return -1;
        t->out = scratch; /* of all strings only the names are kept */
    }
    if (failed)
        return -1;
    return seen == ALL ? 0 : json_text_fail(t, "of a tensor's dtype, shape and data_offsets one is missing");
}

static int read_object(struct reader *r) {
    struct gb_json_text *t = &r->text;
    struct gb_json_word name;
    bool first = true;
    bool failed = false;
    char *kept;

    if (t->at == t->end || *t->at++ != '{')
        return json_text_fail(t, "it does not begin with {");
    while (gb_json_text_more(t, '}', &first, &failed)) {
        kept = t->out;
        if (gb_json_text_string(t, &name) < 0 || gb_json_text_expect(t, ':', "a colon is missing") < 0)
            return -1;
        if (!word_is(&name, GB_SAFETENSORS_METADATA)) {
            if (read_tensor(r, &name) < 0)
                return -1;
            continue;
        }
        if (r->metadata)
            return json_text_fail(t, "a key is given twice");
        r->metadata = true;
        gb_json_text_space(t);
        r->file.metadata_at = (size_t)(t->at - t->begin);
        if (read_metadata(t) < 0)
            return -1;
        r->file.metadata_n = (size_t)(t->at - t->begin) - r->file.metadata_at;
        t->out = kept;
    }
    if (failed)
        return -1;
    gb_json_text_space(t);
    return t->at == t->end ? 0 : json_text_fail(t, "something follows the object");
}

/* --- the layout --------------------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b) {
    const struct gb_safetensor *x = a;
    const struct gb_safetensor *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b) {
    const struct gb_safetensor *const *x = a;
    const struct gb_safetensor *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int check_names(const struct gb_safetensors *file, struct gb_error *err) {
    const struct gb_safetensor **order = malloc((file->count + 1) * sizeof(*order));
    char quoted[GB_WORD_QUOTE_SIZE];
    size_t i;
    int r = 0;

    if (!order)
        return no_memory(err);
    for (i = 0; i < file->count; i++)
        order[i] = &file->tensors[i];
    qsort(order, file->count, sizeof(*order), by_name);
    for (i = 1; i < file->count && r == 0; i++) {
        if (by_name(&order[i - 1], &order[i]) == 0)
            r = gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY, "the safetensors header has the tensor \"%s\" twice",
                             gb_word_quote(order[i]->name, order[i]->name_len, quoted));
    }
    free(order);
    return r;
}

/* Checks that every byte belongs to one tensor, and that each tensor has the bytes of its shape and type. */
static int check_places(struct gb_safetensors *file, struct gb_error *err) {
    char quoted[GB_WORD_QUOTE_SIZE];
    uint64_t at = 0;
    size_t i;

    for (i = 0; i < file->count; i++) {
        const struct gb_safetensor *t = &file->tensors[i];
        uint64_t bytes;

        struct gb_error why = GB_ERROR_INIT;

        gb_word_quote(t->name, t->name_len, quoted);
        if (t->begin != at || t->end < t->begin)
            return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY,
                                "the safetensors header has the bytes of \"%s\" from %llu to %llu, where the next ones "
                                "begin at %llu: there may be no holes, and no overlap",
                                quoted, (unsigned long long)t->begin, (unsigned long long)t->end,
                                (unsigned long long)at);
        if (gb_shape_bytes(&t->shape, t->dtype, &bytes, &why) < 0)
            return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY, "the tensor \"%s\" of the safetensors file: %s", quoted,
                                why.detail);
        if (bytes != t->end - t->begin)
            return gb_error_set(err, GB_ERR_UNSUPPORTED_ARRAY,
                                "the safetensors header gives \"%s\" %llu bytes, and its shape and dtype make %llu",
                                quoted, (unsigned long long)(t->end - t->begin), (unsigned long long)bytes);
        at = t->end;
    }
    file->bytes = at;
    return 0;
}

/* Of a header with much metadata the names are a small part. Without memory for them alone they stay where they are. */
static void shrink(struct reader *r) {
    char *before = r->file.text;
    size_t used = (size_t)(r->text.out - before);
    char *now = malloc(used + 1);
    size_t i;

    if (!now)
        return;
    memcpy(now, before, used);
    for (i = 0; i < r->file.count; i++)
        r->file.tensors[i].name = now + (r->file.tensors[i].name - before);
    r->file.text = now;
    free(before);
}

int gb_safetensors_parse(const char *header, size_t n, struct gb_safetensors *ret, struct gb_error *err) {
    struct reader r = {.text = {.begin = header, .at = header, .end = header + n, .err = err}};
    int failed;

    r.file.text = malloc(n + 1);
    if (!r.file.text)
        return no_memory(err);
    r.text.out = r.file.text;
    failed = read_object(&r);
    if (!failed)
        shrink(&r);
    if (!failed && r.file.count > 0) {
        qsort(r.file.tensors, r.file.count, sizeof(*r.file.tensors), by_place);
        failed = check_names(&r.file, err) < 0 || check_places(&r.file, err) < 0;
    }
    if (failed) {
        gb_safetensors_done(&r.file);
        return -1;
    }
    *ret = r.file;
    return 0;
}

void gb_safetensors_done(struct gb_safetensors *file) {
    free(file->tensors);
    free(file->text);
    *file = (struct gb_safetensors){0};
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

void gb_safetensors_open(struct gb_json_writer *out) {
    gb_json_put_raw(out, NULL, "12345678"); /* the length, when it is known */
    out->comma = false;
    gb_json_open(out, NULL, '{');
}

void gb_safetensors_add(struct gb_json_writer *out, const char *name, enum gb_dtype dtype, const struct gb_shape *shape,
                        uint64_t begin, uint64_t end) {
    unsigned i;

    gb_json_open_named(out, name, '{');
    gb_json_put_string(out, "dtype", gb_dtype_safetensors(dtype));
    gb_json_open(out, "shape", '[');
    for (i = 0; i < shape->dims; i++)
        gb_json_put_u64(out, NULL, shape->dim[i]);
    gb_json_close(out, ']');
    gb_json_open(out, "data_offsets", '[');
    gb_json_put_u64(out, NULL, begin);
    gb_json_put_u64(out, NULL, end);
    gb_json_close(out, ']');
    gb_json_close(out, '}');
}

int gb_safetensors_close(struct gb_json_writer *out, struct gb_error *err) {
    uint64_t n;
    int i;

    gb_json_close(out, '}');
    while (!out->failed && out->used % 8 != 0) {
        out->comma = false;
        gb_json_put_raw(out, NULL, " ");
    }
    if (out->failed)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the header; try again later");
    n = out->used - GB_SAFETENSORS_LENGTH;
    for (i = 0; i < GB_SAFETENSORS_LENGTH; i++)
        out->s[i] = (char)(n >> 8 * i);
    return 0;
}
