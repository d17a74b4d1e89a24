/* URLs of buffers and origins, by libcurl's parser. */
#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "pull/pull.h"

bool gb_pull_url_is(const char *text) {
    return strstr(text, "://") != NULL;
}

static int invalid(const char *text, const char *why, struct gb_error *err) {
    return gb_error_set(err, GB_ERR_INVALID_ARGUMENT, "the URL %.160s %s", text, why);
}

static bool has(CURLU *url, CURLUPart part) {
    char *value = NULL;
    bool ret = curl_url_get(url, part, &value, 0) == CURLUE_OK && value && value[0] != '\0';

    curl_free(value);
    return ret;
}

static int read_origin(CURLU *url, const char *text, char ret[GB_PULL_ORIGIN_SIZE], struct gb_error *err) {
    char *scheme = NULL;
    char *host = NULL;
    char *port = NULL;
    char *p;
    int n = -1;

    if (curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK) {
        for (p = host; *p; p++)
            *p = *p >= 'A' && *p <= 'Z' ? (char)(*p + ('a' - 'A')) : *p;
        n = snprintf(ret, GB_PULL_ORIGIN_SIZE, "%s://%s:%s", scheme, host, port);
    }
    if (n >= 0 && strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)
        n = -1;
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    return n > 0 && n < GB_PULL_ORIGIN_SIZE ? 0 : invalid(text, "is none of http or https with a host", err);
}

static int parse(CURLU **ret, const char *text, struct gb_error *err) {
    CURLU *url = curl_url();

    if (!url)
        return gb_error_set(err, GB_ERR_SATURATED, "no memory for the request; try again later");
    if (strlen(text) > GB_PULL_URL_MAX || curl_url_set(url, CURLUPART_URL, text, CURLU_PATH_AS_IS) != CURLUE_OK) {
        curl_url_cleanup(url);
        return invalid(text, "is malformed, or has more than 1024 bytes", err);
    }
    if (has(url, CURLUPART_USER) || has(url, CURLUPART_PASSWORD)) {
        curl_url_cleanup(url);
        return gb_error_set(err, GB_ERR_INVALID_ARGUMENT,
                            "a URL with a name or a password: give the source's token as \"token\" beside the URL");
    }
    *ret = url;
    return 0;
}

/* /v1/sessions/S/buffers/B */
static bool read_path(const char *path, struct gb_pull_url *ret) {
    static const char sessions[] = "/v1/sessions/";
    static const char buffers[] = "/buffers/";
    const char *session = path + sizeof(sessions) - 1;
    const char *slash;

    if (strncmp(path, sessions, sizeof(sessions) - 1) != 0)
        return false;
    slash = strchr(session, '/');
    if (!slash || strncmp(slash, buffers, sizeof(buffers) - 1) != 0)
        return false;
    path = slash + sizeof(buffers) - 1;
    return gb_name_parse("session", session, (size_t)(slash - session), &ret->session, NULL) == 0 &&
           gb_name_parse("buffer", path, strlen(path), &ret->buffer, NULL) == 0;
}

int gb_pull_url_read(const char *text, struct gb_pull_url *ret, struct gb_error *err) {
    char *path = NULL;
    CURLU *url;
    int r;

    *ret = (struct gb_pull_url){.origin = ""};
    if (parse(&url, text, err) < 0)
        return -1;
    r = read_origin(url, text, ret->origin, err);
    if (r == 0 && (has(url, CURLUPART_QUERY) || has(url, CURLUPART_FRAGMENT) ||
                   curl_url_get(url, CURLUPART_PATH, &path, 0) != CURLUE_OK || !read_path(path, ret)))
        r = invalid(text, "names no buffer: give http[s]://HOST[:PORT]/v1/sessions/SESSION/buffers/BUFFER", err);
    curl_free(path);
    curl_url_cleanup(url);
    return r;
}

int gb_pull_origin_read(const char *text, char ret[GB_PULL_ORIGIN_SIZE], struct gb_error *err) {
    char *path = NULL;
    CURLU *url;
    int r;

    if (parse(&url, text, err) < 0)
        return -1;
    r = read_origin(url, text, ret, err);
    if (r == 0 && (has(url, CURLUPART_QUERY) || has(url, CURLUPART_FRAGMENT) ||
                   (curl_url_get(url, CURLUPART_PATH, &path, 0) == CURLUE_OK && strcmp(path, "/") != 0)))
        r = invalid(text, "has more than http[s]://HOST[:PORT]", err);
    curl_free(path);
    curl_url_cleanup(url);
    return r;
}
