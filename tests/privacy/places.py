"""Secrets by their place: commands, calls, files, addresses, hashes and headers, written down apart from the rules.

Each is a text with `§` where the secret stands, and the forms the secret may have there.
"""

import random

from tools.bench import token_examples

from privacy.labelled import Labelled

TYPED = ("{alnum:6}#{lower:4}", "{alnum:5}!{lower:5}", "{alpha:6}{digits:3}")
WORD = ("{alpha:8}",)
BASE64 = ("{b64:26}==", "{b64:43}=")
PLACES = (
    # hashes
    ("§", "$2b$12${crypt:53}", "$2a$10${crypt:53}", "$1${crypt:8}${crypt:22}", "$5${crypt:12}${crypt:43}"),
    ("root:§:18000:0:99999:7:::", "$6${crypt:16}${crypt:86}", "$6$rounds=5000${crypt:16}${crypt:86}"),
    ("admin:§", "$apr1${crypt:8}${crypt:22}", "$P$B{crypt:30}", "$H$9{crypt:30}", "$y$j9T${crypt:22}${crypt:43}"),
    ("hash: §", "$argon2id$v=19$m=65536,t=3,p=4${b64:22}${b64:43}", "$scrypt$ln=16,r=8,p=1${b64:22}${b64:43}"),
    ("§", "pbkdf2_sha256$260000${alnum:22}${b64:43}=", "$pbkdf2-sha256$29000${crypt:22}${crypt:43}"),
    ("userPassword: {SSHA}§", "{b64:38}=="),
    ("bob:{SHA}§", "{b64:27}="),
    ("§", "$krb5tgs$23$*svc$CORP.IO$db/x*${hex:32}${hex:200}", "$krb5asrep$23$user@CORP.IO:{hex:32}${hex:200}"),
    ("Administrator:500:§:::", "{hex:32}:{hex:32}"),
    ("IDENTIFIED BY PASSWORD '§'", "*{HEX:40}"),
    ("SCRAM-SHA-256$4096:§", "{b64:22}==${b64:43}=:{b64:43}="),
    # shells
    ('ConvertTo-SecureString -String "§" -AsPlainText -Force', *TYPED),
    ("ConvertTo-SecureString '§' -AsPlainText -Force", *TYPED),
    ('$p = ConvertTo-SecureString -AsPlainText "§" -Force', *TYPED),
    ('$p = "§" | ConvertTo-SecureString -AsPlainText -Force', *TYPED),
    ("net use Z: \\\\srv01\\share /user:CORP\\bob §", *TYPED),
    ("net use \\\\10.0.0.5\\c$ § /user:admin", *TYPED),
    ("net user backup § /add", *TYPED),
    ("psexec \\\\host -u CORP\\admin -p § cmd.exe", *TYPED),
    ("Invoke-Sqlcmd -Username sa -Password '§'", *TYPED),
    ("cmdkey /add:host /user:bob /pass:§", *TYPED),
    ("schtasks /create /ru bob /rp §", *TYPED),
    ("xfreerdp /u:bob /p:§ /v:host", *TYPED),
    ("curl -u bob:§ https://x.io", *TYPED),
    ("curl --user 'bob:§' https://x.io", *TYPED),
    ("wget --user=bob --password=§ https://x.io", *TYPED),
    ("sshpass -p '§' ssh bob@x", *TYPED),
    ("mysql -u root -p§ shop", *TYPED),
    ("PGPASSWORD=§ psql", *TYPED, *WORD),
    ("docker login -u bob -p § r.io", *TYPED),
    ("ldapsearch -D cn=admin -w § -b dc=x", *TYPED),
    ("sqlcmd -S db -U sa -P §", *TYPED),
    ("smbclient //host/share -U bob%§", *TYPED),
    ("htpasswd -b file bob §", *TYPED),
    ("zip -P § a.zip f", *TYPED),
    ("rabbitmqctl add_user bob §", *TYPED),
    ("export DB_PASSWORD=§", *TYPED, *WORD),
    # calls and code
    ("define('AUTH_KEY', '§');", "{alnum:9}#{alnum:9};{alnum:9}&{alnum:9}({alnum:9}^{alnum:14}"),
    ("define( 'NONCE_SALT',  '§' );", "{alnum:9}%{alnum:9}={alnum:9}!{alnum:9}){alnum:9},{alnum:14}"),
    ("mysql_connect('localhost', 'root', '§');", *TYPED),
    ("new mysqli('localhost','app','§','shop')", *TYPED),
    ("new PDO('mysql:host=db;dbname=x', 'root', '§')", *TYPED),
    ('new NetworkCredential("bob", "§")', *TYPED),
    ("requests.get(url, auth=('bob', '§'))", *TYPED),
    ("HTTPBasicAuth('bob', '§')", *TYPED),
    ("$mail->Password = '§';", *TYPED),
    ("SECRET_KEY = '§'", "django-insecure-{lower:12}#{lower:12}({lower:12}!{lower:11}"),
    ("JWT_SECRET=§", "{alnum:8}!{alnum:8}@{alnum:8}*{alnum:5}"),
    ('set("Authorization", fmt.Sprintf("Bearer %s", "§"))', "{alnum:32}", "{hex:40}"),
    ("mnemonic: §", " ".join(["{alpha:5}"] * 12)),
    # files
    ('network={\n  ssid="home"\n  psk="§"\n}', *TYPED),
    ('network={\n  ssid="home"\n  psk=§\n}', "{hex:64}"),
    ("machine x.io login bob password §", *TYPED),
    ("db.corp.io:5432:shop:app:§", *TYPED),
    ("//npm.example.com/:_authToken=§", "npm_{alnum:36}", "{uuid}"),
    ("//npm.corp.io/:_password=§", *BASE64),
    ('{"auths":{"https://index.docker.io/v1/":{"auth":"§"}}}', *BASE64),
    ("users:\n- name: x\n  user:\n    token: §\n", "{url:40}"),
    ("kind: Secret\ndata:\n  password: §\n", "{b64:14}=="),
    ("<server><username>u</username><password>§</password></server>", *WORD, *TYPED),
    ("spring.datasource.username=app\nspring.datasource.password=§", *WORD, *TYPED),
    ("credentials {\n  username 'bob'\n  password '§'\n}", *WORD, *TYPED),
    ("license_key: §", "{upper:5}-{upper:5}-{upper:5}-{upper:5}"),
    ("Public-Lines: 1\nx\nPrivate-Lines: 2\n§\nPrivate-MAC: 00", "{b64:64}\n{b64:63}="),
    ("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n§\n---- END SSH2 ENCRYPTED PRIVATE KEY ----", "{b64:64}\n{b64:64}"),
    ("<RSAKeyValue><Modulus>x</Modulus><D>§</D></RSAKeyValue>", "{b64:170}=="),
    ('{"kty":"EC","crv":"P-256","d":"§","x":"a"}', "{url:43}"),
    ("user,key\nbob,{key},§\n".format(key="AK" + "IA" + "Q4WDJHZXNWMC2RTL"), "{b64:40}"),
    ("snmp-server community § RW", *TYPED),
    ("username admin password 7 §", "{HEX:14}"),
    ("tacacs-server host 10.0.0.1 key §", *TYPED),
    # addresses
    ("https://§@github.com/o/r.git", "{hex:40}"),
    ("postgresql://bob:§@db/x", *TYPED[1:], "{alpha:4}\\{digits:1}{lower:6}"),
    ("mongodb+srv://bob:§@c0.abcde.mongodb.net/x", *TYPED[1:]),
    ("https://§:x-oauth-basic@github.com/o/r.git", "{hex:40}"),
    ("jdbc:oracle:thin:scott/§@h:1521:x", *TYPED[2:]),
    ("jdbc:sqlserver://h;user=sa;password=§;", *TYPED),
    ("Server=h;Database=d;User Id=sa;Password=§;", *TYPED),
    ("https://x.io/cb?oauth_token=§&oauth_verifier=x", "{alnum:27}"),
    ("https://x.io/cb?access_token=§&expires_in=3600", "{alnum:40}"),
    ("https://x.io/?client_secret=§&y=1", "{alnum:32}"),
    ("https://a.blob.core.windows.net/c?sv=2022-11-02&sp=r&sig=§", "{alnum:20}%2B{alnum:21}%3D"),
    ("https://demo.thingsboard.io/api/v1/§/telemetry", "{alnum:20}"),
    ("http://blynk-cloud.com/§/get/v1", "{url:32}"),
    # clouds and services
    ('"private_key_id": "§",', "{hex:40}"),
    ("AccountKey=§;EndpointSuffix=core.windows.net", "{b64:86}=="),
    ("Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=§", "{b64:43}="),
    ("Endpoint=https://x.azconfig.io;Id=ab-l0-s0:x;Secret=§", "{b64:43}="),
    ("AWS_SESSION_TOKEN=§", "FwoGZXIvYXdzE{b64:200}=="),
    ("X-Amz-Signature=§", "{hex:64}"),
    ("Jenkins-Crumb: §", "{hex:64}"),
    ("Authorization: SSWS §", "00{url:40}"),
    ("X-Vault-Token: §", "s.{alnum:24}"),
    ("Authorization: Bearer §", "{digits:1}-{alnum:64}", "{dots:40}"),
    ('"method":"auth.login_with_api_key","params":["§"]', "{digits:1}-{alnum:64}"),
    ("TWITTER_ACCESS_TOKEN=§", "{digits:19}-{alnum:40}"),
    ("storyblok token §", "{alnum:22}tt"),
    ("kagi §", "{url:11}.{url:43}"),
    ("tableau: §", "{b64:22}==:{alnum:32}"),
    ("§", "00D{alnum:12}!AQ{dots:94}", "t1.{url:30}.{url:86}", "YCAJE{url:20}", "NRSP-us01{HEX:31}"),
    ("§", "dt0s01.{upper:24}.{upper:64}", "jina_{url:60}", "ucat_{alnum:28}", "AIK_CI_{alnum:40}", "ajkey_{alnum:26}"),
    ("§", "glc_{b64:61}==", "ops_eyJ{b64:260}=", "fm2_{b64:110}=", "ABSK{b64:120}==", "cmVmd{alnum:59}"),
    ("§", "xoxb-{digits:12}-{digits:12}", "xoxa-{alnum:12}", "xapp-1-{upper:9}-{digits:9}-{lower:16}"),
)  # fmt: skip


def texts(seed=31, copies=3):
    """Every place with each of its forms, some times."""
    chance = random.Random(seed)
    for template, *shapes in PLACES:
        for shape in shapes:
            for _ in range(copies):
                secret = token_examples.make_example(shape, chance)
                before, _, after = template.partition("§")
                yield Labelled(
                    before + secret + after, len(before), len(before) + len(secret), template
                )
