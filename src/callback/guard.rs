//! Which addresses a callback may go to: those of the public internet, unless private ones are allowed.
//!
//! What is judged is the address that is connected to, at the moment when its name was resolved for that connection, so
//! that a name which leads somewhere else a moment later gains nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// All addresses that a name leads to are private.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no public address")]
pub struct NotPublic;

/// Whether an address belongs to the public internet.
///
/// Source: IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890); multicast, RFC 5771.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        [0 | 10 | 127, ..] => true,
        // Shared address space of carriers (RFC 6598).
        [100, b, ..] => b & 0b1100_0000 == 64,
        [169, 254, ..] | [192, 168, ..] => true,
        [172, b, ..] => b & 0b1111_0000 == 16,
        // Protocol assignments, documentation, the old relay anycast of 6to4.
        [192, 0, 0 | 2, _] | [192, 88, 99, _] => true,
        // Benchmarks (RFC 2544), documentation (RFC 5737).
        [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        // Multicast, reserved, broadcast.
        [a, ..] => a >= 224,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(v4) = address.to_ipv4_mapped() {
        return is_public_v4(v4);
    }
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // How a host without IPv4 reaches one that has nothing else (RFC 6052).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        // Protocol assignments, Teredo among them (RFC 2928); documentation (RFC 3849, RFC 9637); 6to4 (RFC 3056).
        [0x2001, b, ..] => b >= 0x200 && b != 0xdb8,
        [0x2002, ..] => false,
        [0x3fff, b, ..] => b >= 0x1000,
        // Only this block is given out as global unicast (RFC 4291 section 2.4).
        [a, ..] => a & 0xe000 == 0x2000,
    }
}

/// Resolves names as the system does, and gives away public addresses only.
#[derive(Clone, Copy, Debug)]
pub struct PublicResolver;

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // The client puts its own port in the place of 0.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err(NotPublic.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        for refused in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:808:808::1",
            "3fff:1::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(refused.parse().expect("an address")), "{refused}");
        }
        for public in [
            "1.1.1.1",
            "9.9.9.9",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "2a00:1450::1",
            "3fff:ffff::1",
        ] {
            assert!(is_public(public.parse().expect("an address")), "{public}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_resolves_to_nothing() {
        let refused = PublicResolver.resolve("localhost".parse().expect("a name")).await.err().expect("nothing");
        assert_eq!(refused.downcast_ref::<NotPublic>(), Some(&NotPublic));
    }
}
