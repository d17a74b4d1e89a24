#include "cli/backup/place.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/backup/manifest.h"
#include "cli/files.h"

#define REGION "us-east-1" /* where no other is given, as the tools of AWS have it */
#define UNRESERVED "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

static char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

static char *text_of(const char *format, ...) {
    char *text;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    return text;
}

/* Bytes that are not among `kept` as %XX; malloc'd. */
static char *escaped(const char *text, size_t bytes, const char *kept) {
    char *ret = malloc(bytes * 3 + 1);
    char *at = ret;
    size_t i;

    for (i = 0; ret != NULL && i < bytes; i++) {
        if (text[i] != '\0' && strchr(kept, text[i]) != NULL)
            *at++ = text[i];
        else
            at += sprintf(at, "%%%02X", (unsigned char)text[i]);
    }
    if (ret != NULL)
        *at = '\0';
    return ret;
}

/* Without the slashes at its end. */
static size_t trimmed(const char *text) {
    size_t n = strlen(text);

    while (n > 1 && text[n - 1] == '/')
        n--;
    return n;
}

static const char *variable(const char *first, const char *second) {
    const char *value = getenv(first);

    if ((value == NULL || value[0] == '\0') && second != NULL)
        value = getenv(second);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool begins(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

static int whole(bool good, struct gpubuf_error *err) {
    return good ? 0 : gb_backup_fail(err, GPUBUF_NO_MEMORY, "out of memory");
}

static int read_folder(const char *path, struct gb_place *ret, struct gpubuf_error *err) {
    if (path[0] == '\0')
        return gb_backup_fail(err, GPUBUF_BAD_ARGUMENT, "the path of the folder is missing");
    ret->kind = GB_PLACE_FOLDER;
    ret->base = strndup(path, trimmed(path));
    ret->name = strndup(path, trimmed(path));
    return whole(ret->base != NULL && ret->name != NULL, err);
}

/* A URL that names a place: no user in it, because a secret would stand in the list of processes, and no query. */
static int check_url(const char *what, const char *url, struct gpubuf_error *err) {
    const char *host = strstr(url, "://") + 3;
    size_t n = strcspn(host, "/?#");

    if (n == 0)
        return gb_backup_fail(err, GPUBUF_BAD_ARGUMENT, "%s has no host", what);
    if (memchr(host, '@', n) != NULL)
        return gb_backup_fail(err, GPUBUF_BAD_ARGUMENT,
                              "%s has a user in it, which every process of this machine could read; write it into "
                              "~/.netrc, or for S3 into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                              what);
    if (strpbrk(host, "?#") != NULL)
        return gb_backup_fail(err, GPUBUF_BAD_ARGUMENT,
                              "%s has a query or a fragment; it names a place for many objects, as "
                              "https://HOST/PATH does",
                              what);
    return 0;
}

static int read_http(const char *url, struct gb_place *ret, struct gpubuf_error *err) {
    if (check_url("the URL", url, err) < 0)
        return -1;
    ret->kind = GB_PLACE_HTTP;
    ret->base = escaped(url, trimmed(url), UNRESERVED ":/%!$&'()*+,;=@[]");
    ret->name = strndup(url, trimmed(url));
    ret->cacert = variable("CURL_CA_BUNDLE", NULL);
    return whole(ret->base != NULL && ret->name != NULL, err);
}

/* --- S3 ----------------------------------------------------------------------------------------------------------- */

static int read_credentials(struct gb_place *ret, struct gpubuf_error *err) {
    const char *id = variable("AWS_ACCESS_KEY_ID", NULL);
    const char *secret = variable("AWS_SECRET_ACCESS_KEY", NULL);
    const char *token = variable("AWS_SESSION_TOKEN", NULL);
    const char *region = variable("AWS_REGION", "AWS_DEFAULT_REGION");

    if (id == NULL || secret == NULL)
        return gb_backup_fail(err, GPUBUF_BAD_ARGUMENT, "s3:// needs %s in the environment",
                              id == NULL ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY");
    if (strpbrk(id, ": \r\n") != NULL || strpbrk(secret, "\r\n") != NULL ||
        (token != NULL && strpbrk(token, "\r\n") != NULL))
        return gb_backup_fail(err, GPUBUF_BAD_ARGUMENT,
                              "the AWS_* variables have no line ends, and AWS_ACCESS_KEY_ID no colon or blank");
    ret->sigv4 = text_of("aws:amz:%s:s3", region != NULL ? region : REGION);
    ret->user = text_of("%s:%s", id, secret);
    ret->token = token != NULL ? text_of("x-amz-security-token: %s", token) : NULL;
    ret->cacert = variable("AWS_CA_BUNDLE", NULL);
    return whole(ret->sigv4 != NULL && ret->user != NULL && (token == NULL || ret->token != NULL), err);
}

static char *endpoint_of(const struct gb_cli *cli, struct gpubuf_error *err) {
    const char *given = cli->options.endpoint;
    const char *region = variable("AWS_REGION", "AWS_DEFAULT_REGION");
    char *url;

    if (given == NULL)
        given = variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
    if (given == NULL)
        url = text_of("https://s3.%s.amazonaws.com", region != NULL ? region : REGION);
    else if (!begins(given, "http://") && !begins(given, "https://")) {
        gb_backup_fail(err, GPUBUF_BAD_ARGUMENT, "the endpoint \"%s\" is no http:// or https:// URL", given);
        return NULL;
    } else if (check_url("the endpoint", given, err) < 0)
        return NULL;
    else
        url = strndup(given, trimmed(given));
    if (url == NULL)
        gb_backup_fail(err, GPUBUF_NO_MEMORY, "out of memory");
    return url;
}

/* Keys are taken as they stand; in the URL they are escaped, as the signature wants it. */
static int read_s3(const struct gb_cli *cli, const char *text, struct gb_place *ret, struct gpubuf_error *err) {
    const char *bucket = text + strlen("s3://");
    size_t n = strcspn(bucket, "/");
    const char *prefix = bucket + n + strspn(bucket + n, "/");
    size_t left = prefix[0] != '\0' ? trimmed(prefix) : 0;
    char *endpoint;
    char *path;
    bool good;

    ret->kind = GB_PLACE_S3;
    if (n < 3 || strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789.-") < n)
        return gb_backup_fail(err, GPUBUF_BAD_ARGUMENT,
                              "\"%s\" has no bucket: s3://BUCKET/PREFIX, a bucket of three or more letters, digits, "
                              "dots and dashes",
                              text);
    if (read_credentials(ret, err) < 0)
        return -1;
    endpoint = endpoint_of(cli, err);
    if (endpoint == NULL)
        return -1;
    path = escaped(prefix, left, UNRESERVED "/");
    ret->name = text_of("s3://%.*s%s%.*s", (int)n, bucket, left > 0 ? "/" : "", (int)left, prefix);
    ret->bucket = text_of("%s/%.*s", endpoint, (int)n, bucket);
    ret->base = text_of("%s/%.*s%s%s", endpoint, (int)n, bucket, left > 0 ? "/" : "", path != NULL ? path : "");
    ret->prefix = text_of("%.*s%s", (int)left, prefix, left > 0 ? "/" : "");
    good = path != NULL && ret->name != NULL && ret->bucket != NULL && ret->base != NULL && ret->prefix != NULL;
    free(endpoint);
    free(path);
    return whole(good, err);
}

int gb_place_read(const struct gb_cli *cli, const char *text, struct gb_place *ret, struct gpubuf_error *err) {
    char *path = gb_cli_host_path(cli, text);
    int rc;

    memset(ret, 0, sizeof *ret);
    if (path == NULL)
        return gb_backup_fail(err, GPUBUF_NO_MEMORY, "out of memory");
    if (begins(path, "s3://"))
        rc = read_s3(cli, path, ret, err);
    else if (begins(path, "http://") || begins(path, "https://"))
        rc = read_http(path, ret, err);
    else if (begins(path, "file:///"))
        rc = read_folder(path + strlen("file://"), ret, err);
    else if (strstr(path, "://") != NULL)
        rc = gb_backup_fail(err, GPUBUF_BAD_ARGUMENT,
                            "\"%s\" is no place that is known: a path, file:///PATH, http[s]://HOST/PATH or "
                            "s3://BUCKET/PREFIX",
                            path);
    else
        rc = read_folder(path, ret, err);
    free(path);
    return rc;
}

void gb_place_done(struct gb_place *place) {
    free(place->name);
    free(place->base);
    free(place->bucket);
    free(place->prefix);
    free(place->sigv4);
    if (place->user != NULL)
        explicit_bzero(place->user, strlen(place->user));
    free(place->user);
    if (place->token != NULL)
        explicit_bzero(place->token, strlen(place->token));
    free(place->token);
    memset(place, 0, sizeof *place);
}

char *gb_place_at(const struct gb_place *place, const char *object) {
    return text_of("%s/%s", place->base, object);
}
