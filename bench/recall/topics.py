"""What people tell an assistant, and how they ask for it later. {who}, {place} and {thing} are filled in from lists.

Each topic has statements, the questions that use their words ("direct"), other forms of their words ("inflected"),
other words ("paraphrased"), and a case where the assistant asks and the answer alone is short ("answered": what the
assistant asks, what is answered, and the later question).
"""

from __future__ import annotations

from typing import NamedTuple


class Topic(NamedTuple):
    statements: tuple[str, ...]
    direct: tuple[str, ...]
    inflected: tuple[str, ...]
    paraphrased: tuple[str, ...]
    answered: tuple[str, str, str]
    values: tuple[str, ...]


PEOPLE = (
    *("Marta", "Joachim", "Priya", "Olu", "Hanna", "Tomas", "Leila", "Grandma", "Uncle Ravi", "Bex", "Noor", "Felix"),
    *("Ingrid", "Samuel", "Yuki", "Carlo", "my sister", "my neighbour", "Dr Weiss", "the twins"),
)
PLACES = (
    *("Porto", "Leipzig", "Bergen", "Kyoto", "Oaxaca", "Galway", "Tbilisi", "Ghent", "Valparaiso", "Turku", "Cluj"),
    *("Marrakesh", "Utrecht", "Hobart", "Split", "Tromso", "Lucca", "Aarhus", "Quito", "Bath"),
)
THINGS = (
    *("dishwasher", "old bicycle", "laptop", "greenhouse", "boiler", "piano", "camper van", "camera", "roof window"),
    *("coffee machine", "printer", "kayak", "sewing machine", "garage door", "heat pump", "guitar", "telescope"),
    *("lawn mower", "aquarium", "bookshelf"),
)
TOPICS = (
    Topic(
        ("We booked the {value} in {place}, three nights, breakfast included.",
         "For {place} I reserved a room at the {value} after comparing far too many sites."),
        ("Which hotel did we book in {place}?", "What room did I reserve in {place}?"),
        ("What was the booking for {place}?", "Which reservations do I have for {place}?"),
        ("Where are we sleeping while we are in {place}?", "What accommodation was arranged for {place}?"),
        ("Did you find somewhere to stay in {place}?", "Yes, the {value}.", "Where do we stay in {place}?"),
        ("Hotel Miramar", "Casa Azul", "Blue Heron Inn", "Pension Lindner", "Old Mill House", "Grand Station Hotel"),
    ),
    Topic(
        ("{who} cannot eat {value}, it gives a bad rash within minutes.",
         "Please remember that {who} is allergic to {value}."),
        ("What is {who} allergic to?", "What can {who} not eat?"),
        ("Which allergies does {who} have?", "What should {who} avoid eating?"),
        ("Which food makes {who} ill?", "What must stay off the menu when {who} comes for dinner?"),
        ("Is there any food that {who} has to stay away from?", "{value}, sadly.", "Which food is off for {who}?"),
        ("hazelnuts", "shellfish", "celery", "sesame", "kiwi", "soy milk"),
    ),
    Topic(
        ("I got {who} a {value} for the birthday, wrapped and hidden in the wardrobe.",
         "Bought the birthday present for {who} today: a {value}."),
        ("What present did I buy for {who}?", "What did I get {who} for the birthday?"),
        ("What have I been buying for the birthdays, for {who} I mean?", "Which presents were bought for {who}?"),
        ("What gift is waiting for {who}?", "What am I giving {who} to celebrate?"),
        ("Have you decided what {who} is going to get?", "A {value}, I think.", "What did I decide to give {who}?"),
        ("ceramic teapot", "wool scarf", "board game", "fountain pen", "cookery class", "star map"),
    ),
    Topic(
        ("The {thing} was repaired by {value}, who charged less than the estimate.",
         "{value} fixed the {thing} this morning, it was only a loose wire."),
        ("Who repaired the {thing}?", "Who fixed the {thing}?"),
        ("Who does the repairs of the {thing}?", "Who was fixing the {thing}?"),
        ("Which craftsman got the {thing} working again?", "Who mended the {thing}?"),
        ("Has anybody looked at the {thing} yet?", "{value} did, all good now.", "Who looked at the {thing}?"),
        ("Brandt & Sons", "a student called Emil", "the shop on Mill Lane", "Ferro Service", "Mrs Okafor", "Petrov"),
    ),
    Topic(
        ("The warranty of the {thing} runs out in {value}, the receipt is in the blue folder.",
         "I bought the {thing} with a guarantee until {value}."),
        ("When does the warranty of the {thing} run out?", "Until when is the guarantee of the {thing}?"),
        ("Are the warranties still running, for the {thing}?", "How long is the {thing} guaranteed?"),
        ("How long is the {thing} still covered?", "Until which month can the {thing} be replaced for free?"),
        ("How long does the warranty of the {thing} last?", "To {value}, I checked.", "{thing} warranty end?"),
        ("March", "next August", "the end of October", "spring 2028", "December", "early June"),
    ),
    Topic(
        ("{who} started a new job as {value} and seems much happier.",
         "Big news, {who} now works as {value}."),
        ("What does {who} work as now?", "What new job did {who} start?"),
        ("Where is {who} working these days?", "What jobs has {who} been starting?"),
        ("How does {who} earn a living?", "What is the profession of {who} now?"),
        ("What is {who} doing these days?", "Working as {value}, since May.", "What does {who} do these days?"),
        ("a paramedic", "a sound engineer", "a tram driver", "an archivist", "a pastry chef", "a surveyor"),
    ),
    Topic(
        ("The train to {place} leaves from platform {value} and we need to change once.",
         "Our departure to {place} is from platform {value}, tickets are printed."),
        ("From which platform does the train to {place} leave?", "Which platform is our departure to {place}?"),
        ("Which platforms are trains leaving from for {place}?", "Where are we departing for {place}?"),
        ("Where in the station do I have to stand for {place}?", "Which track do we need when travelling to {place}?"),
        ("Do you know the platform for {place} already?", "Number {value}.", "What was the platform for {place}?"),
        ("4", "11b", "27", "9 south", "2", "16"),
    ),
    Topic(
        ("In {place} we absolutely have to visit the {value}, {who} keeps talking about it.",
         "{who} recommended the {value} in {place}."),
        ("What did {who} recommend in {place}?", "What do we have to visit in {place}?"),
        ("What are the recommendations for {place}?", "Which visits are planned in {place}?"),
        ("Which sight should we not miss in {place}?", "What was the tip for our stay in {place}?"),
        ("Is there one thing in {place} you want to see?", "The {value} first of all.", "What first in {place}?"),
        ("tile museum", "harbour market", "botanical garden", "tower at sunset", "puppet theatre", "salt baths"),
    ),
    Topic(
        ("We sold the {thing} for {value} to a collector from {place}.",
         "The {thing} is gone, somebody paid {value} for it."),
        ("For how much did we sell the {thing}?", "How much was paid for the {thing}?"),
        ("What was the selling price of the {thing}?", "What did buyers pay for the {thing}?"),
        ("How much money did the {thing} bring in?", "What did we earn when we got rid of the {thing}?"),
        ("How much would you take for the {thing}?", "I would say {value}.", "What price did I want for the {thing}?"),
        ("340 euros", "1,150 euros", "80 euros", "two thousand", "275 euros", "95 pounds"),
    ),
    Topic(
        ("{who} is moving to {place} because of {value}.",
         "It is decided, {who} moves to {place}, the reason is {value}."),
        ("Why is {who} moving to {place}?", "What is the reason {who} moves to {place}?"),
        ("Why has {who} moved to {place}?", "What were the reasons for the move of {who}?"),
        ("What made {who} relocate?", "Why will {who} live in {place}?"),
        ("Why would {who} want to go to {place}?", "It is about {value}.", "Why does {who} want to go to {place}?"),
        ("a scholarship", "the mild winters", "an old flame", "cheaper rent", "the choir there", "a sick parent"),
    ),
    Topic(
        ("The doctor told {who} to take {value} every evening for six weeks.",
         "{who} was prescribed {value} after the check-up."),
        ("What was {who} prescribed?", "What does {who} have to take every evening?"),
        ("Which prescriptions does {who} have?", "What is {who} taking in the evenings?"),
        ("Which medicine is {who} on?", "What treatment did {who} get?"),
        ("What did the doctor give {who}?", "{value}, nothing strong.", "What did the doctor give {who}?"),
        ("iron tablets", "vitamin D", "cough syrup", "magnesium", "eye drops", "an antihistamine"),
    ),
    Topic(
        ("I painted the wall behind the {thing} in {value} and it dried darker than expected.",
         "The colour next to the {thing} is called {value}, two litres are left."),
        ("Which colour is the wall behind the {thing}?", "What is the colour next to the {thing} called?"),
        ("What paint did I use behind the {thing}?", "Which colours are around the {thing}?"),
        ("Which shade did I choose near the {thing}?", "What tone do I need to touch up around the {thing}?"),
        ("Which colour goes behind the {thing}?", "{value}, in the end.", "What colour did we take for the {thing}?"),
        ("sage green", "oyster white", "brick red", "slate", "pale ochre", "midnight blue"),
    ),
)  # fmt: skip
CHATTER = (
    ("What is the weather like tomorrow?", "Cloudy in the morning, then dry with a light wind."),
    ("Remind me to water the plants.", "I will remind you this evening."),
    ("Can you shorten this paragraph?", "Here is a shorter version with the same meaning."),
    ("I slept badly again.", "I am sorry to hear that. A walk before bed may help."),
    ("How do I centre a box in CSS?", "Use a grid container with place-items set to center."),
    ("What time is it in Tokyo?", "It is eight hours ahead of you."),
    ("Thanks, that was helpful.", "Glad it helped!"),
    ("Convert 12 miles to kilometres.", "That is a little over 19 kilometres."),
    ("Any idea for dinner with leeks?", "A leek and potato soup takes half an hour."),
    ("Write a polite answer to this mail.", "Here is a draft that declines and leaves the door open."),
    ("I have a meeting at nine.", "Noted. Do you want a summary of the last one before it?"),
    ("Tell me something funny.", "A photon checks into a hotel and says it is travelling light."),
)
ASIDES = (
    *("Talked with {who} about {place} today, nothing decided.", "{who} called, we chatted about the {thing} a bit."),
    *("The {thing} came up again at dinner.", "I keep thinking about {place}.", "{who} says hello."),
    *("Looked at pictures of {place} with {who}.", "Would a second {thing} make sense?", "{who} asked about {place}."),
)
REPLIES = (
    *("Noted.", "Thanks for telling me, I will keep it in mind.", "Good to know!", "All right.", "Sounds good."),
    *("I see. Anything else about {anchor}?", "Got it, {anchor}.", "Understood. Shall I note that for {anchor}?"),
)
