/* Tokens and their scopes, and the names of certificates that may stand for a token. A name is compared in the form in
 * which GnuTLS writes it. The core, the daemon and the API call it. */
#include "model/token.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

/* --- token -------------------------------------------------------------------------------------------------------- */

static const char *const scope_names[GB_SCOPE_COUNT] = {"verify",    "read",  "write", "map",
                                                        "map-write", "admin", "fleet"};

const char *gb_scope_name(enum gb_scope scope) {
    return (unsigned)scope < GB_SCOPE_COUNT ? scope_names[scope] : "unknown";
}

int gb_scope_parse(const char *name, size_t len, enum gb_scope *ret_scope, struct gb_error *err) {
    size_t index;

    if (gb_word_parse("scope", scope_names, GB_SCOPE_COUNT, name, len, &index, err) < 0)
        return -1;
    *ret_scope = (enum gb_scope)index;
    return 0;
}

int gb_scopes_parse(const char *text, size_t len, unsigned *ret_scopes, struct gb_error *err) {
    const char *end = text + len;
    unsigned scopes = 0;

    for (;;) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        enum gb_scope scope;

        if (gb_scope_parse(text, (size_t)((comma ? comma : end) - text), &scope, err) < 0)
            return -1;
        scopes |= 1u << scope;
        if (!comma)
            break;
        text = comma + 1;
    }
    *ret_scopes = scopes;
    return 0;
}

char *gb_scopes_text(unsigned scopes, char *out) {
    char *at = out;
    int i;

    *at = '\0';
    for (i = 0; i < GB_SCOPE_COUNT; i++) {
        if (!(scopes & 1u << i))
            continue;
        if (at > out)
            *at++ = ',';
        at = stpcpy(at, scope_names[i]);
    }
    return out;
}

bool gb_scopes_include(unsigned scopes, enum gb_scope scope) {
    static const unsigned by[GB_SCOPE_COUNT] = {
        [GB_SCOPE_VERIFY] = 1u << GB_SCOPE_VERIFY | 1u << GB_SCOPE_READ | 1u << GB_SCOPE_WRITE,
        [GB_SCOPE_READ] = 1u << GB_SCOPE_READ | 1u << GB_SCOPE_WRITE,
        [GB_SCOPE_WRITE] = 1u << GB_SCOPE_WRITE,
        [GB_SCOPE_MAP] = 1u << GB_SCOPE_MAP | 1u << GB_SCOPE_MAP_WRITE,
        [GB_SCOPE_MAP_WRITE] = 1u << GB_SCOPE_MAP_WRITE,
        [GB_SCOPE_FLEET] = 1u << GB_SCOPE_FLEET,
    };

    return (scopes & (by[scope] | 1u << GB_SCOPE_ADMIN)) != 0;
}

/* --- subject ------------------------------------------------------------------------------------------------------ */

/* The names of a client's certificate, in the forms in which the daemon compares them. */

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"
#define ESCAPED ",+\"\\<>;"

/* The attribute types that GnuTLS writes by name. It writes others as their numbers, and their values as #HEX. */
static const char *const types[] = {"CN",
                                    "O",
                                    "OU",
                                    "C",
                                    "L",
                                    "ST",
                                    "DC",
                                    "UID",
                                    "EMAIL",
                                    "serialNumber",
                                    "street",
                                    "title",
                                    "surName",
                                    "givenName",
                                    "initials",
                                    "generationQualifier",
                                    "pseudonym",
                                    "dnQualifier",
                                    "postalCode",
                                    "name",
                                    "description",
                                    "businessCategory",
                                    "telephoneNumber",
                                    "dateOfBirth",
                                    "placeOfBirth",
                                    "gender",
                                    "countryOfCitizenship",
                                    "countryOfResidence",
                                    "userPrincipalName",
                                    "jurisdictionOfIncorporationLocalityName",
                                    "jurisdictionOfIncorporationStateOrProvinceName",
                                    "jurisdictionOfIncorporationCountryName",
                                    "XmppAddr",
                                    "OGRN",
                                    "SNILS",
                                    "OGRNIP",
                                    "INN"};

static const char *type_as_written(const char *type, size_t len) {
    size_t i;

    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strlen(types[i]) == len && strncasecmp(types[i], type, len) == 0)
            return types[i];
    }
    return len == 12 && strncasecmp(type, "emailAddress", len) == 0 ? "EMAIL" : NULL;
}

/* --- other names -------------------------------------------------------------------------------------------------- */

static bool has_blank(const char *text) {
    return strchr(text, ' ') != NULL;
}

static const char *dns_flaw(const char *text) {
    size_t n = strlen(text);

    if (n == 0 || strspn(text, LETTERS DIGITS "-_.*") != n || text[0] == '.' || text[n - 1] == '.' ||
        strstr(text, ".."))
        return "behind dns: there is a host name";
    return NULL;
}

static const char *uri_flaw(const char *text) {
    size_t n = strspn(text, LETTERS DIGITS "+-.");

    return n == 0 || strspn(text, LETTERS) == 0 || text[n] != ':' || text[n + 1] == '\0' || has_blank(text)
               ? "behind uri: there is a URI with its scheme, such as spiffe://example/cam1"
               : NULL;
}

static const char *email_flaw(const char *text) {
    const char *at = strchr(text, '@');

    return at == NULL || at == text || at[1] == '\0' || strchr(at + 1, '@') || has_blank(text)
               ? "behind email: there is an address such as a@example.org"
               : NULL;
}

static bool plain_address(const char *text, char ret[INET6_ADDRSTRLEN]) {
    unsigned char bytes[16];

    if (inet_pton(AF_INET, text, bytes) == 1)
        return inet_ntop(AF_INET, bytes, ret, INET6_ADDRSTRLEN) != NULL;
    return inet_pton(AF_INET6, text, bytes) == 1 && inet_ntop(AF_INET6, bytes, ret, INET6_ADDRSTRLEN) != NULL;
}

static const char *ip_flaw(const char *text) {
    char plain[INET6_ADDRSTRLEN];

    return plain_address(text, plain) && strcmp(plain, text) == 0
               ? NULL
               : "behind ip: there is an address such as 192.0.2.7, or 2001:db8::7 in its shortest form";
}

static const struct kind {
    const char *word;
    const char *(*flaw)(const char *text);
} kinds[] = {{"dns:", dns_flaw}, {"uri:", uri_flaw}, {"email:", email_flaw}, {"ip:", ip_flaw}};

static const struct kind *kind_of(const char *text, int (*compare)(const char *, const char *, size_t)) {
    size_t i;

    for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (compare(text, kinds[i].word, strlen(kinds[i].word)) == 0)
            return &kinds[i];
    }
    return NULL;
}

/* --- subjects ----------------------------------------------------------------------------------------------------- */

/* The end of a value: an unescaped comma or plus, or the end of the text. */
static size_t value_length(const char *text) {
    size_t n = 0;

    while (text[n] != '\0' && text[n] != ',' && text[n] != '+')
        n += text[n] == '\\' && text[n + 1] != '\0' ? 2 : 1;
    return n;
}

static bool is_hex(const char *text, size_t len) {
    return len >= 3 && len % 2 == 1 && text[0] == '#' && strspn(text + 1, DIGITS "abcdef") >= len - 1;
}

static const char *value_flaw(const char *text, size_t len) {
    size_t i;

    if (is_hex(text, len))
        return NULL;
    if (text[0] == ' ' || text[0] == '#' || (text[len - 1] == ' ' && (len < 2 || text[len - 2] != '\\')))
        return "a blank at the ends of a value, and # at its beginning, stand behind \\";
    for (i = 0; i < len; i++) {
        if (strchr("\"<>;", text[i]))
            return "in a value \" < > ; , + and \\ stand behind \\";
        if (text[i] != '\\')
            continue;
        i++;
        if (i >= len ||
            (!strchr(ESCAPED, text[i]) && !(text[i] == ' ' && (i == 1 || i == len - 1)) && !(text[i] == '#' && i == 1)))
            return "in a value \\ stands before \" < > ; , + and \\ alone, and before a blank at its ends";
    }
    return NULL;
}

static const char *type_flaw(const char *type, size_t len, const char *value, size_t value_len) {
    const char *written = type_as_written(type, len);

    if (written && strlen(written) == len && memcmp(written, type, len) == 0)
        return NULL;
    if (!written && type[0] >= '0' && type[0] <= '9' && strspn(type, DIGITS ".") == len && memchr(type, '.', len))
        return is_hex(value, value_len) ? NULL : "behind a type given by number there is #, then hexadecimal digits";
    return "the types are such as CN, O, OU, C, L, ST, DC, UID, EMAIL and serialNumber, in these letters";
}

static const char *subject_flaw(const char *text) {
    if (text[0] == '/')
        return "the parts have a comma between them and no / before them, the most special part first";
    for (;;) {
        size_t type = strcspn(text, "=,+");
        const char *value = text + type + 1;
        const char *flaw;
        size_t len;

        if (text[type] != '=' || type == 0)
            return "each part has the form TYPE=VALUE, such as CN=ci";
        if (memchr(text, ' ', type))
            return "no blank stands beside a comma or before =";
        len = value_length(value);
        if (len == 0)
            return "a part has no value";
        flaw = type_flaw(text, type, value, len);
        if (!flaw)
            flaw = value_flaw(value, len);
        if (flaw || value[len] == '\0')
            return flaw;
        text = value + len + 1;
    }
}

const char *gb_subject_flaw(const char *text) {
    const struct kind *kind = kind_of(text, strncmp);

    if (kind)
        return kind->flaw(text + strlen(kind->word));
    if (kind_of(text, strncasecmp))
        return "the words dns, uri, email and ip are in small letters";
    if (!strchr(text, '='))
        return "it is a subject such as CN=ci,O=lab, or begins with dns:, uri:, email: or ip:";
    return subject_flaw(text);
}

/* --- what was meant ----------------------------------------------------------------------------------------------- */

/* A part with the type as GnuTLS writes it and without blanks around type and value. Returns what it takes. */
static int put_part(char *to, size_t size, const char *part, size_t len) {
    const char *equals = memchr(part, '=', len);
    const char *value = equals ? equals + 1 : part;
    size_t value_len = len - (size_t)(value - part);
    size_t type_len = equals ? (size_t)(equals - part) : 0;
    const char *written;

    while (type_len > 0 && *part == ' ')
        part++, type_len--;
    while (type_len > 0 && part[type_len - 1] == ' ')
        type_len--;
    while (value_len > 0 && *value == ' ')
        value++, value_len--;
    while (value_len > 0 && value[value_len - 1] == ' ')
        value_len--;
    written = type_as_written(part, type_len);
    if (written)
        return snprintf(to, size, "%s=%.*s", written, (int)value_len, value);
    return snprintf(to, size, "%.*s=%.*s", (int)type_len, part, (int)value_len, value);
}

/* "/O=lab/CN=ci", as openssl once wrote it: the last part comes first. */
static void from_slashes(const char *text, char *ret, size_t size) {
    size_t end = strlen(text);
    size_t at = 0;

    while (end > 0 && at < size) {
        size_t begin = end;

        while (begin > 0 && text[begin - 1] != '/')
            begin--;
        if (begin < end) {
            if (at > 0)
                at += (size_t)snprintf(ret + at, size - at, ",");
            if (at < size)
                at += (size_t)put_part(ret + at, size - at, text + begin, end - begin);
        }
        end = begin > 0 ? begin - 1 : 0;
    }
}

static void from_parts(const char *text, char *ret, size_t size) {
    size_t at = 0;

    for (;;) {
        size_t n = value_length(text);

        at += (size_t)put_part(ret + at, size - at, text, n);
        if (text[n] == '\0' || at + 1 >= size)
            return;
        ret[at++] = text[n];
        ret[at] = '\0';
        text += n + 1;
    }
}

/* False: no guess would be a subject either. */
static bool guess(const char *text, char ret[GB_SUBJECT_SIZE]) {
    const struct kind *kind = kind_of(text, strncasecmp);
    char plain[INET6_ADDRSTRLEN];

    ret[0] = '\0';
    if (kind && strcmp(kind->word, "ip:") == 0 && plain_address(text + 3, plain))
        snprintf(ret, GB_SUBJECT_SIZE, "ip:%s", plain);
    else if (kind)
        snprintf(ret, GB_SUBJECT_SIZE, "%s%s", kind->word, text + strlen(kind->word));
    else if (text[0] == '/')
        from_slashes(text, ret, GB_SUBJECT_SIZE);
    else if (strchr(text, '='))
        from_parts(text, ret, GB_SUBJECT_SIZE);
    else if (!strchr(text, ':'))
        snprintf(ret, GB_SUBJECT_SIZE, "CN=%.*s", GB_SUBJECT_SIZE - 4, text);
    return ret[0] != '\0' && gb_subject_flaw(ret) == NULL;
}

int gb_subject_parse(const char *text, size_t len, char ret[GB_SUBJECT_SIZE], struct gb_error *err) {
    char meant[GB_SUBJECT_SIZE];
    char copy[GB_SUBJECT_SIZE];
    const char *flaw;
    size_t i;

    if (len == 0 || len >= GB_SUBJECT_SIZE)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "a subject has 1 to %d bytes, not %zu", GB_SUBJECT_SIZE - 1,
                            len);
    for (i = 0; i < len; i++) {
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "byte %zu of the subject is a control character", i + 1);
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    flaw = gb_subject_flaw(copy);
    if (flaw && guess(copy, meant))
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "no certificate has the subject \"%.80s\": %s; \"%.120s\" may be meant", copy, flaw, meant);
    if (flaw)
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "no certificate has the subject \"%.80s\": %s; \"gpubufd tls show FILE\" prints that of a "
                            "certificate",
                            copy, flaw);
    memcpy(ret, copy, len + 1);
    return 0;
}
