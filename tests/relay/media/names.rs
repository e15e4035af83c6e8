//! Whatever a server calls its file, the file lands in the turn's folder and nowhere else.

use std::collections::BTreeSet;
use std::fs;

use hermes_relay::net::media::MediaSettings;

use crate::media::server::{Rig, Server, answer, file};

#[tokio::test]
async fn no_name_leads_out_of_the_folder() {
    let hostile = [
        "attachment; filename=\"../../etc/x\"",
        "attachment; filename=\"/etc/cron.d/x\"",
        "attachment; filename=\"..\\\\..\\\\x\"",
        "attachment; filename=\"C:\\x\"",
        "attachment; filename=\"..\"",
        "attachment; filename=\".bashrc\"",
        "attachment; filename=\"CON\"",
        "attachment; filename*=UTF-8''%2e%2e%2f%2e%2e%2fx",
        "attachment; filename*=UTF-8''a%00b%0d%0a.png",
        "attachment; filename*=UTF-8''%ff%fe/..",
        "attachment; filename=\"-rf\"",
    ];
    let long = format!("attachment; filename=\"{}.png\"", "y".repeat(3000));
    let mut fields: Vec<String> = hostile.iter().map(|field| (*field).to_owned()).collect();
    fields.push(long);
    let (count, given) = (fields.len(), fields.clone());
    let server = Server::start(move |seen| {
        let index: usize = seen.uri.trim_start_matches("/n").parse().unwrap();
        answer(&[("content-disposition", &given[index])], seen.uri.clone())
    })
    .await;
    let rig = Rig::public_loopback(MediaSettings::default());
    let urls: Vec<String> = (0..count)
        .map(|index| server.url(&format!("/n{index}")))
        .collect();
    let fetched = rig
        .fetch(&urls.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    let folder = fetched.dir.as_ref().unwrap().path();
    let mut names = BTreeSet::new();
    for (index, received) in fetched.files.iter().enumerate() {
        let path = file(received);
        assert_eq!(path.parent(), Some(folder), "{}", fields[index]);
        assert_eq!(path.file_name().unwrap().to_str(), Some(received.name.as_str()));
        assert_eq!(fs::read_to_string(path).unwrap(), format!("/n{index}"));
        assert!(
            !received.name.starts_with(['.', '-']) && received.name.len() < 200,
            "{}",
            received.name
        );
        assert!(!received.name.contains(char::is_control));
        assert!(
            names.insert(received.name.to_lowercase()),
            "{} twice",
            received.name
        );
    }
    let on_disk = fs::read_dir(folder).unwrap().count();
    assert_eq!((on_disk, names.len()), (count, count));
    assert_eq!(fs::read_dir(rig.state.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn equal_names_are_numbered() {
    let server = Server::start(|seen| {
        let name = if seen.uri == "/1" { "A.PNG" } else { "a.png" };
        answer(
            &[("content-disposition", &format!("inline; filename={name}"))],
            "x",
        )
    })
    .await;
    let rig = Rig::public_loopback(MediaSettings::default());
    let urls = [server.url("/0"), server.url("/1"), server.url("/2")];
    let fetched = rig.fetch(&[&urls[0], &urls[1], &urls[2]]).await;
    let names: BTreeSet<_> = fetched.files.iter().map(|one| one.name.to_lowercase()).collect();
    assert_eq!(
        names,
        BTreeSet::from(["a.png", "a-2.png", "a-3.png"].map(str::to_owned))
    );
}
