#!/bin/sh
# Certificates of a test, made by openssl(1) in the directory given.   usage: certificates.sh DIRECTORY
#
#   ca.pem                     signs server, server2, client, expired; authority of the good ones
#   server.pem  server.key     broker.test, localhost, 127.0.0.1 and [::1]; the file holds the chain
#   server2.pem server2.key    the same names, another key
#   client.pem  client.key     for clients
#   expired.pem expired.key    the names of server, valid until it was made
#   other-ca.pem               signs stranger
#   stranger.pem stranger.key  the names of server, and for clients too
#   locked.key                 the key of server, encrypted with a password
set -eu
cd "$1"

names="subjectAltName=DNS:broker.test,DNS:localhost,IP:127.0.0.1,IP:::1"
new_key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }
authority() { # NAME
    new_key "$1.key"
    openssl req -x509 -new -key "$1.key" -days 30 -subj "/O=Narad test/CN=$1" -out "$1.pem"
}
signed() { # NAME AUTHORITY DAYS EXTENSION
    new_key "$1.key"
    openssl req -new -key "$1.key" -subj "/O=Narad test/CN=$1" |
        openssl x509 -req -CA "$2.pem" -CAkey "$2.key" -set_serial "0x$(openssl rand -hex 8)" -days "$3" \
            -extfile /dev/fd/3 3<<END 2> sign.log -out "$1.pem" || { cat sign.log >&2; exit 1; }
$4
END
}

authority ca
authority other-ca
signed server ca 30 "$names"
signed server2 ca 30 "$names"
signed client ca 30 "extendedKeyUsage=clientAuth"
signed expired ca 0 "$names"
signed stranger other-ca 30 "$names"
for name in server server2; do
    cat ca.pem >> "$name.pem"
done
openssl pkey -in server.key -aes-128-cbc -passout pass:test -out locked.key
rm -f sign.log
