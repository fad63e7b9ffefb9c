"""Providers' tokens as their own documents show them, written down apart from the rule data.

Each is a word people put beside the value, the alphabet and length of the value, and what it
begins with. The labelled texts made from it put word and value together in the ways of
configuration files, shells, logs and comments. Nothing here is read from the rules.
"""

import random
import string
import uuid

from privacy.labelled import Labelled

HEX, LOWER, UPPER = (
    "0123456789abcdef",
    string.ascii_lowercase + string.digits,
    string.ascii_uppercase + string.digits,
)
ALNUM = string.ascii_letters + string.digits
URL, B64 = ALNUM + "-_", ALNUM + "+/"
DIGITS = string.digits

# (word, what it begins with, alphabet, length); the alphabet "uuid" makes a UUID.
BARE = (
    *(
        ("github", head, ALNUM, 36)
        for head in ("gh" + "p_", "gh" + "o_", "gh" + "u_", "gh" + "s_", "gh" + "r_")
    ),
    ("github", "github" + "_pat_" + "11ABCDEFG0", ALNUM, 72),
    ("gitlab", "gl" + "pat-", URL, 20),
    ("gitlab", "gl" + "dt-", URL, 20),
    ("gitlab", "gl" + "rt-", URL, 20),
    ("aws", "AK" + "IA", UPPER[:26] + "234567", 16),
    ("aws", "AS" + "IA", UPPER[:26] + "234567", 16),
    ("google", "AI" + "za", URL, 35),
    ("google", "GOC" + "SPX-", URL, 28),
    ("google", "ya29" + ".", URL, 120),
    ("slack", "xo" + "xb-123456789012-1234567890123-", ALNUM, 24),
    ("slack", "xa" + "pp-1-A0123456789-1234567890123-", HEX, 64),
    ("stripe", "sk" + "_live_", ALNUM, 24),
    ("stripe", "rk" + "_live_", ALNUM, 24),
    ("stripe", "sk" + "_test_", ALNUM, 24),
    ("stripe", "wh" + "sec_", ALNUM, 32),
    ("twilio", "SK", HEX, 32),
    ("sendgrid", "SG" + ".Ab3dE5gH7jK9mN1pQ3sT5v.", URL, 43),
    ("openai", "sk" + "-proj-", URL, 48),
    ("anthropic", "sk" + "-ant-api03-", URL, 93),
    ("npm", "np" + "m_", ALNUM, 36),
    ("pypi", "pypi-" + "AgEIcHlwaS5vcmc", URL, 150),
    ("docker", "dckr" + "_pat_", URL, 27),
    ("digitalocean", "do" + "p_v1_", HEX, 64),
    ("digitalocean", "do" + "o_v1_", HEX, 64),
    ("shopify", "shp" + "at_", HEX, 32),
    ("shopify", "shp" + "ss_", HEX, 32),
    ("square", "sq0" + "atp-", URL, 22),
    ("square", "sq0" + "csp-", URL, 43),
    ("square", "EAAA" + "E", URL, 59),
    ("telegram", "123456789:AA", URL, 33),
    ("atlassian", "ATATT3" + "xFfGF0", URL, 174),
    ("newrelic", "NR" + "AK-", UPPER, 27),
    ("newrelic", "NR" + "II-", URL, 32),
    ("sentry", "sntr" + "ys_", ALNUM, 60),
    ("grafana", "gl" + "c_", ALNUM, 60),
    ("grafana", "gl" + "sa_Ab3dE5gH7jK9mN1pQ3sT5vX7zA9cE1gH_", HEX, 8),
    ("vault", "hv" + "s.", URL, 90),
    ("databricks", "dap" + "i", HEX, 32),
    ("huggingface", "hf" + "_", string.ascii_letters, 34),
    ("linear", "lin" + "_api_", ALNUM, 40),
    ("notion", "ntn" + "_", DIGITS + ALNUM, 46),
    ("notion", "secret" + "_", ALNUM, 43),
    ("airtable", "pat" + "Abcdefgh123456.", HEX, 64),
    ("figma", "fig" + "d_", URL, 40),
    ("mapbox", "sk" + ".eyJ1IjoiYWRhIiwiYSI6ImNrMTIzNDU2Nzg5MDEyMyJ9.", URL, 22),
    ("mailgun", "key" + "-", HEX, 32),
    ("netlify", "nf" + "p_", ALNUM, 36),
    ("supabase", "sb" + "p_", HEX, 40),
    ("planetscale", "pscale" + "_tkn_", URL, 43),
    ("planetscale", "pscale" + "_pw_", URL, 43),
    ("postman", "PM" + "AK-0a1b2c3d4e5f6a7b8c9d0e1f-", HEX, 34),
    ("pulumi", "pul" + "-", HEX, 40),
    ("rubygems", "rubygems" + "_", HEX, 48),
    ("sourcegraph", "sgp" + "_", HEX, 40),
    ("typeform", "tfp" + "_", URL, 59),
    ("age", "AGE-SECRET-" + "KEY-1", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    ("doppler", "dp" + ".pt.", ALNUM, 43),
    ("dynatrace", "dt0" + "c01.ABCDEFGH12345678IJKLMN90.", UPPER, 64),
    ("easypost", "EZ" + "AK", ALNUM, 54),
    ("flyio", "fo1" + "_", URL, 43),
    ("groq", "gsk" + "_", ALNUM, 52),
    ("perplexity", "ppl" + "x-", ALNUM, 48),
    ("replicate", "r8" + "_", ALNUM, 37),
    ("tailscale", "tskey-auth-" + "kAbCdEf12CNTRL-", ALNUM, 32),
    ("yandex", "AQ" + "VN", URL, 36),
    ("yandex", "y0_" + "AgAAAA", URL, 52),
    ("clojars", "CLO" + "JARS_", LOWER, 60),
    ("prefect", "pn" + "u_", LOWER, 36),
    ("readme", "rd" + "me_", LOWER, 70),
    ("contentful", "CF" + "PAT-", URL, 43),
    ("xai", "xai" + "-", ALNUM, 80),
    ("upcloud", "uc" + "at_", ALNUM, 28),
    ("aikido", "AIK" + "_CI_", ALNUM, 40),
    ("arcjet", "aj" + "key_", ALNUM, 26),
    ("nylas", "ny" + "k_v0_", ALNUM, 64),
    ("dnsimple", "dns" + "imple_a_", ALNUM, 32),
    ("portainer", "pt" + "r_", URL, 44),
    ("samsara", "samsara" + "_api_", ALNUM, 30),
    ("cartesia", "sk" + "_car_", ALNUM, 22),
    ("linear", "lin" + "_wh_", ALNUM, 40),
    ("canva", "cn" + "vca", URL, 51),
)
NEAR = (
    ("aws_secret_access_key", "", B64, 40),
    ("heroku", "", "uuid", 0),
    ("datadog", "", HEX, 32),
    ("dd_app_key", "", HEX, 40),
    ("twilio_auth_token", "", HEX, 32),
    ("cloudflare", "", URL, 40),
    ("cloudflare_global_key", "", HEX, 37),
    ("fastly", "", URL, 32),
    ("vercel", "", ALNUM, 24),
    ("snyk", "", "uuid", 0),
    ("okta", "00", URL, 40),
    ("auth0_client_secret", "", URL, 64),
    ("mailchimp", "", HEX, 32),
    ("discord", "", HEX, 64),
    ("discord_client_secret", "", URL, 32),
    ("circleci", "", HEX, 40),
    ("travis", "", ALNUM, 22),
    ("algolia", "", HEX, 32),
    ("asana", "", HEX, 32),
    ("bitbucket", "", ALNUM, 32),
    ("bitbucket_client_secret", "", URL, 64),
    ("codecov", "", "uuid", 0),
    ("coinbase", "", URL, 64),
    ("confluent", "", UPPER, 16),
    ("confluent_secret", "", B64, 64),
    ("dropbox", "", LOWER, 15),
    ("etsy", "", LOWER, 24),
    ("facebook", "", HEX, 32),
    ("finnhub", "", LOWER, 20),
    ("flickr", "", HEX, 32),
    ("freshdesk", "", ALNUM, 20),
    ("gitter", "", HEX, 40),
    ("hubspot", "", "uuid", 0),
    ("intercom", "", ALNUM, 60),
    ("jfrog", "", ALNUM, 73),
    ("jira", "", ALNUM, 24),
    ("kraken", "", B64, 80),
    ("kucoin", "", HEX, 24),
    ("launchdarkly", "", "uuid", 0),
    ("linkedin", "", ALNUM, 16),
    ("lob", "live" + "_", HEX, 35),
    ("mattermost", "", LOWER, 26),
    ("messagebird", "", LOWER, 25),
    ("nytimes", "", ALNUM, 32),
    ("pagerduty", "", ALNUM, 20),
    ("plaid", "", HEX, 30),
    ("plaid_client_id", "", HEX, 24),
    ("rapidapi", "", ALNUM, 50),
    ("segment", "", ALNUM, 32),
    ("sumologic", "su", ALNUM, 12),
    ("squarespace", "", "uuid", 0),
    ("spotify", "", HEX, 32),
    ("trello", "", HEX, 32),
    ("twitch", "", LOWER, 30),
    ("twitter", "", ALNUM, 50),
    ("zendesk", "", ALNUM, 40),
    ("zoom", "", ALNUM, 22),
    ("sonarqube", "", HEX, 40),
    ("rollbar", "", HEX, 32),
    ("mixpanel", "", HEX, 32),
    ("pusher", "", HEX, 20),
    ("ipstack", "", HEX, 32),
    ("openweather", "", HEX, 32),
    ("newsapi", "", HEX, 32),
    ("pipedrive", "", HEX, 40),
    ("clearbit", "", HEX, 32),
    ("clickup", "pk" + "_1234567_", UPPER, 32),
    ("monday", "", ALNUM, 60),
    ("opsgenie", "", "uuid", 0),
    ("uptimerobot", "", HEX, 32),
    ("statuspage", "", "uuid", 0),
    ("zapier", "", ALNUM, 32),
    ("sendbird", "", HEX, 40),
    ("nexmo", "", ALNUM, 16),
    ("vonage", "", HEX, 16),
    ("tailscale", "", ALNUM, 40),
    ("cloudinary", "", URL, 27),
    ("eventbrite", "", UPPER, 20),
    ("formstack", "", HEX, 32),
    ("polygon", "", ALNUM, 32),
    ("quickbase", "", ALNUM, 40),
    ("instagram", "", HEX, 32),
    ("statsig", "", ALNUM, 43),
    ("upstage", "", ALNUM, 44),
    ("infomaniak", "", URL, 86),
    ("civo", "", LOWER, 50),
    ("private_ai", "", LOWER, 32),
    ("message_bird", "", "uuid", 0),
    ("bintray", "", LOWER, 64),
    ("calendly", "", ALNUM, 32),
    ("voiceflow", "", HEX, 40),
)
SYNTAXES = (
    '{w}_token = "{v}"',
    "{w}: {v}",
    '"{w}_key": "{v}",',
    "{w}_secret => '{v}'",
    "tool --{w}-token {v}",
    "export {W}_API_KEY={v}",
    "<{w}_key>{v}</{w}_key>",
    "# {w} key, do not share: {v}",
    "https://api.example.com/v1?{w}_key={v}&page=2",
    "{w}:\n    api_key: {v}\n",
    "{W}_TOKEN ?= {v}",
    'set_{w}_token("{v}")',
    "{w} token\n{v}\n",
    "The {w} credentials are {v} for now",
    "{w}.key={v}",
    "'{w}Token': '{v}'",
    "{W}_KEY:\t{v}",
    '[{w}]\nsecret = "{v}"',
)


def value(shape, chance):
    """Make a value of a shape, with letters and digits in it where both are allowed."""
    head, alphabet, size = shape
    if alphabet == "uuid":
        return str(uuid.UUID(int=chance.getrandbits(128), version=4))
    while True:
        body = "".join(chance.choices(alphabet, k=size))
        mixed = any(c.isdigit() for c in body) and any(c.isalpha() for c in body)
        if (
            body[-1].isalnum()
            and body[0].isalnum()
            and (mixed or alphabet.isalpha() or alphabet.isdigit())
        ):
            return head + body


def place_secret(template, word, secret, rule):
    """Put `secret` into a syntax beside `word`."""
    head, _, tail = template.partition("{v}")
    before, after = (
        part.replace("{w}", word).replace("{W}", word.upper()) for part in (head, tail)
    )
    return Labelled(before + secret + after, len(before), len(before) + len(secret), rule)


def texts(shapes, seed=21, copies=6):
    """Every shape in some of the syntaxes."""
    chance = random.Random(seed)
    for word, *shape in shapes:
        for template in chance.sample(SYNTAXES, copies):
            yield place_secret(template, word, value(shape, chance), word)


def bare(seed=22):
    """Every shape that begins with something telling, with nothing beside it."""
    chance = random.Random(seed)
    for word, *shape in BARE:
        secret = value(shape, chance)
        yield place_secret("used {v} here", "", secret, word)
